"""A profile as a source: the program that it embeds."""

import pytest
from oracles.recorded import gpu
from oracles.xspaces import space

import hloscope
import hloscope.api
from hloscope.errors import InputError, UsageError

KERNELS = [("fusion", 0.0, 1.0, 0)]


@pytest.fixture
def profile(fixtures_dir):
    return fixtures_dir / "xplane" / "amd_mi355x_te_fused_attention.xplane.pb"


def test_the_program_that_took_most_of_the_time_is_looked_at(profile):
    subject = hloscope.load(profile)
    assert subject.module.name == "jit_loss_fn"
    assert "most of the time of 9" in str(subject.header()["module"])


def test_every_embedded_program_is_listed_and_can_be_chosen(profile):
    rows = hloscope.api.list_modules(profile).tables[0].rows
    assert len(rows) == 9
    assert rows[0][0] == "jit_loss_fn(17)"
    assert hloscope.load(profile, module="jit__threefry_seed").module.name == "jit__threefry_seed"
    assert hloscope.load(profile, module="jit__normal(13)").module.name == "jit__normal"
    with pytest.raises(UsageError, match="holds 2 modules"):
        hloscope.load(profile, module="jit__normal")


def test_its_audit_has_the_trace_beside_the_program(profile):
    report = hloscope.audit(profile)
    assert report.header["profile"] == f"{profile.name}: 1 GPU, 5 steps, all"
    assert str(report.header["chip"]).startswith("Instinct MI355X")
    assert report.trust is not None
    assert report.trust.traced == pytest.approx(1.0)


def test_a_folder_of_runs_is_a_profile(tmp_path, profile):
    run = tmp_path / "plugins" / "profile" / "2026_01_02"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").symlink_to(profile)
    assert hloscope.load(tmp_path).module.name == "jit_loss_fn"


def test_a_profile_that_embeds_no_program_is_told(tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space(gpu(KERNELS)))
    with pytest.raises(InputError, match="no program is embedded"):
        hloscope.load(path)


TEXT = """
HloModule jit_other
ENTRY e {
  x = f32[8] parameter(0)
  ROOT y = f32[8] add(x, x)
}
"""


def test_an_audit_says_when_the_trace_is_of_another_program(tmp_path, profile):
    path = tmp_path / "other.hlo"
    path.write_text(TEXT)
    report = hloscope.audit(path, trace=profile)
    head = str(report.header["profile"])
    assert head.endswith(
        "; the trace is of another program than jit_other: it spent most of its time in jit_loss_fn"
    )
    classes = {verdict.category.number: verdict.status.value for verdict in report.verdicts}
    assert classes[1] != "not checked"
    assert classes[6] != "not checked"


def test_without_a_trace_what_needs_one_is_not_checked(tmp_path):
    path = tmp_path / "other.hlo"
    path.write_text(TEXT)
    verdicts = {verdict.category.number: verdict for verdict in hloscope.audit(path).verdicts}
    assert verdicts[6].status.value == "not checked"
    assert verdicts[6].reason == "no trace given"
