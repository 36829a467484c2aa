"""``hloscope trace`` from the outside."""

import json

import pytest
from oracles.recorded import gpu
from oracles.xspaces import space


@pytest.fixture
def profile(tmp_path):
    """A folder as JAX writes it: 19 steps of 0.7 ms, the first two with 1.5 ms behind each."""
    kernels, at = [], 0.0
    for step in range(19):
        kernels += [("fusion", at, 0.3, step), ("dot", at + 0.3, 0.4, step)]
        at += 2.2 if step < 2 else 0.7
    run = tmp_path / "plugins" / "profile" / "2026_01_02_03_04_05"
    run.mkdir(parents=True)
    (run / "host.xplane.pb").write_bytes(space(gpu(kernels)))
    return tmp_path


def test_the_verdict_comes_first_and_says_why_the_whole_is_less_busy(hloscope, profile):
    done = hloscope("trace", str(profile))
    assert done.code == 0
    verdict = " ".join(done.out.partition("\n\n")[0].split())
    assert verdict == (
        "GPU 0 was busy 100.0% in steady state; 81.6% over the whole window of 16.3 ms because "
        "the first 2 steps hold 3.00 ms of gaps; it is device-bound."
    )
    assert all(len(line) <= 80 for line in done.out.splitlines())


def test_steps_are_listed_each(hloscope, profile):
    done = hloscope("trace", str(profile), "--steps", "--top", "4")
    rows = [line.split() for line in done.out.splitlines() if line.startswith("GPU 0   ")]
    assert ["GPU", "0", "1", "700", "us", "700", "us", "1.50", "ms", "unknown", "no"] in rows
    assert "15 more" in done.out


def test_the_document_has_exact_times(hloscope, profile):
    document = json.loads(hloscope("trace", str(profile), "--window", "all", "--json").out)
    tables = {table["name"]: table for table in document["tables"]}
    (row,) = tables["parts"]["rows"][:1]
    compute = next(cell for cell in row if isinstance(cell, dict) and cell["name"] == "compute")
    assert compute["value"] == pytest.approx(13.3e-3, rel=1e-12)
    assert document["subject"] == "2026_01_02_03_04_05"


def test_one_device_can_be_looked_at_by_its_name_or_its_number(hloscope, tmp_path):
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space(*(gpu([("dot", 0.0, 1.0, 0)], number) for number in (0, 3))))
    assert "2" in hloscope("trace", str(path)).out.split("devices", 1)[1].splitlines()[0]
    for name in ("3", "GPU 3", "gpu 3"):
        done = hloscope("trace", str(path), "--device", name)
        assert done.out.startswith("GPU 3 was busy 100.0% of 1.00 ms")
        assert "GPU 0" not in done.out
    done = hloscope("trace", str(path), "--device", "7")
    assert done.code == 2
    assert "The devices are: GPU 0, GPU 3." in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "colour"), "time is not listed by 'colour'"),
        (("--window", "noon"), "'noon' is no window"),
        (("--run", "yesterday"), "no run has the name 'yesterday'"),
    ],
)
def test_what_cannot_be_meant_exits_2_with_the_way_out(hloscope, profile, arguments, said):
    done = hloscope("trace", str(profile), *arguments)
    assert done.code == 2
    assert said in done.err
    assert "hint: " in done.err


def test_a_folder_without_a_profile_is_told(hloscope, tmp_path):
    done = hloscope("trace", str(tmp_path))
    assert done.code == 2
    assert "nothing was recorded here" in done.err


def test_one_step_that_starts_up_is_one(hloscope, tmp_path):
    kernels = [("fusion", 0.0, 0.7, 0)]
    kernels += [("fusion", 3.7 + 0.7 * step, 0.7, step + 1) for step in range(9)]
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space(gpu(kernels)))
    done = hloscope("trace", str(path))
    # Ten steps of 0.7 ms in 10 ms.
    assert " ".join(done.out.split()).startswith(
        "GPU 0 was busy 100.0% in steady state; 70.0% over the whole window of 10.0 ms because "
        "the first step holds 3.00 ms of gaps;"
    )
