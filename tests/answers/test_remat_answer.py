"""``hloscope remat``: what a user reads of checkpoints, one program or several policies."""

from __future__ import annotations

import io

import pytest

import hloscope
from hloscope.answers.remat_ladder import compare_policies
from hloscope.api import compare_remat
from hloscope.cli.run import run
from hloscope.errors import TargetError, UsageError
from hloscope.ir import parse_text
from hloscope.ir.named_points import NamedPoints, RematPolicy
from hloscope.models import registry
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.report import terminal
from hloscope.subjects import ModuleSubject

load_passes()


def written(report):
    stream = io.StringIO()
    terminal.write(report, stream)
    return stream.getvalue()


def table(report, name):
    return next(table for table in report.tables if table.name == name)


def test_a_recorded_step_says_what_runs_again_and_what_it_spares(fixtures_dir):
    report = hloscope.remat(fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo")
    assert "20.2% of the step's product FLOPs run again" in report.summary
    assert "It repeats 7 exchanges between devices." in report.summary
    figures = {row[0]: row[1].value for row in table(report, "step").rows}
    assert figures["recomputed"] == sum(row[2].value for row in table(report, "regions").rows)
    assert figures["rebuilt"] > figures["kept"] > 0
    assert any("does not tell" in note or "not known" in note for note in report.notes)
    assert max(map(len, written(report).splitlines())) <= 80


def test_a_step_without_a_checkpoint_says_so_first(fixtures_dir):
    report = hloscope.remat(fixtures_dir / "compiled" / "today" / "gpu_scan_train.hlo")
    assert report.summary == "Nothing is computed again: no checkpoint in the step."
    assert [table.name for table in report.tables] == ["step"]


def test_an_unscheduled_module_does_not_pretend_to_know_what_is_spared(fixtures_dir):
    report = hloscope.remat(fixtures_dir / "hlo" / "gpu_maxtext_1n1g_before_optimizations.hlo")
    assert "rebuilt" not in {row[0] for row in table(report, "step").rows}
    assert any("not scheduled" in note for note in report.notes)


@pytest.fixture(scope="module")
def ladder(need_target):
    need_target("h100")
    return compare_remat(
        ["none", "dots", "full"], arch="causal_transformer", preset="smoke", target="h100"
    )


def cells(report, column):
    """The cells of a column of the ladder, by policy."""
    policies = table(report, "policies")
    place = [column.title for column in policies.columns].index(column)
    return {row[0]: getattr(row[place], "value", row[place]) for row in policies.rows}


def test_policies_keep_less_the_more_they_run_again(ladder):
    kept = [cells(ladder, "kept")[policy] for policy in ("none", "dots", "full")]
    again = [cells(ladder, "FLOPs again")[policy] for policy in ("none", "dots", "full")]
    assert kept == sorted(kept, reverse=True)
    assert again[0] == again[1] == 0 < again[2]
    assert set(cells(ladder, "fits").values()) == {"yes"}


def test_what_a_policy_spares_is_the_difference_to_none(ladder):
    for figure in ("peak", "kept"):
        values, spared = cells(ladder, figure), cells(ladder, f"{figure} spared")
        assert spared == {policy: values["none"] - value for policy, value in values.items()}
    assert cells(ladder, "peak spared")["full"] > 0


def test_a_policy_is_held_against_a_policy(ladder):
    options = {"arch": "causal_transformer", "preset": "smoke", "target": "h100"}
    report = hloscope.remat(beside="none", settings={"remat": "full"}, **options)
    figures = {row[0]: [cell.value for cell in row[1:]] for row in table(report, "spared").rows}
    for figure in ("peak", "kept", "FLOPs again"):
        of = cells(ladder, figure)
        assert figures[figure] == [of["none"], of["full"], of["none"] - of["full"]]
    places = table(report, "no longer kept").rows
    assert all(row[5].value == row[3].value - row[4].value != 0 for row in places)
    assert sum(row[5].value for row in places) <= figures["kept"][2]
    assert "Against remat=none the peak is" in report.summary
    with pytest.raises(UsageError, match="no value of remat"):
        hloscope.remat(beside="half", settings={"remat": "full"}, **options)


NAMED = """
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from hloscope import Step

def block(h, w):
    with jax.named_scope("mlp"):
        return jnp.tanh(checkpoint_name(jnp.sin(checkpoint_name(h @ w, "up")), "sine")), None

names = jax.checkpoint_policies.save_only_these_names("up", "attention")

def loss(run):
    def of(ws, h):
        h, _ = jax.lax.scan(run, h, ws)
        return (h * h).sum()
    return of

shapes = (jax.ShapeDtypeStruct((3, 32, 32), "float32"), jax.ShapeDtypeStruct((64, 32), "float32"))
step = Step(jax.grad(loss(jax.checkpoint(block, policy=names))), shapes)
plain = Step(jax.grad(loss(block)), shapes)
"""


@pytest.fixture
def named(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(NAMED)
    return file


def test_names_that_match_nothing_come_first_in_what_is_said(named):
    report = hloscope.remat(f"{named}:step", beside=f"{named}:plain")
    assert report.summary.startswith("No value of the step has the name 'attention'.")
    asked = {row[1]: row[2:] for row in table(report, "asked names").rows}
    assert asked == {"attention": ("keep", "matches nothing"), "up": ("keep", "yes")}
    up, sine = table(report, "names").rows
    assert (up[0], up[1].value, up[2:5], up[6]) == ("up", 3, ("f32[64,32]", "kept", "kept"), "mlp")
    assert up[5].value == 3 * 64 * 32 * 4
    assert up[7] == "train.py:8"
    assert (sine[0], sine[3], sine[4], sine[5].value) == ("sine", "recomputed", "recomputed", 0)
    # What is computed again in place of being kept: of two values that the scan stacks.
    assert any(row[5].value > 0 for row in table(report, "no longer kept").rows)
    assert max(map(len, written(report).splitlines())) <= 80


def test_the_cheapest_that_fits_runs_nothing_again_where_there_is_room(ladder):
    assert ladder.summary.startswith("Cheapest that fits h100: none, which runs nothing again;")


def test_a_module_without_op_names_does_not_say_that_nothing_runs_again(fixtures_dir):
    path = fixtures_dir / "hlo" / "gpu_llama3_8b_activation_offloading_unscheduled.hlo"
    report = hloscope.remat(path)
    assert report.summary.startswith("What runs again is not known: the module has no op_names.")
    assert report.summary.endswith("14.0 GiB wait for the backward pass on the host.")
    rows = {row[0]: row[1].value for row in table(report, "step").rows}
    assert rows == {"recomputed": None, "offloaded": 14 * 2**30, "brought back": 14 * 2**30}
    assert [row[2].value for row in table(report, "offload").rows] == [14 * 2**30]


ONE_LAYER = """HloModule m, is_scheduled=true
ENTRY e {{
 x = f32[64,64] parameter(0)
 w = f32[64,64] parameter(1)
 f = f32[64,64] dot(x, w), {dot}, metadata={{op_name="jit(f)/jvp()/dot_general"}}
 t = f32[64,64] tanh(f), metadata={{op_name="jit(f)/jvp()/tanh"}}
 {again}
 ROOT b = f32[64,64] dot({read}, t), {dot}, metadata={{op_name="jit(f)/transpose(jvp())/dot"}}
}}"""
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
REPEATED = (
    f"g = f32[64,64] dot(x, w), {DOT}, metadata="
    '{op_name="jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general"}'
)


def test_the_ladder_says_of_each_policy_what_is_wrong_with_it():
    typo = NamedPoints(
        policies=(RematPolicy("save_only_these_names(upp)", saves=("upp",)),), names=("up",)
    )

    def opened(policy):
        again, read = ("", "f") if policy == "none" else (REPEATED, "g")
        module = parse_text(ONE_LAYER.format(dot=DOT, again=again, read=read))
        points = NamedPoints() if policy == "none" else typo
        return Session(ModuleSubject(module, policy), given={NamedPoints: points}), None

    report = compare_policies(["none", "names:upp"], opened, {}, None, "step")
    assert report.notes == (
        "names:upp: No value of the step has the name 'upp' (perhaps 'up'): the policy keeps "
        "nothing by name.",
        "names:upp: spares under 1.00% of the peak of none: it is not worth its time",
    )
    assert cells(report, "compile") == {"none": None, "names:upp": None}


def test_what_cannot_be_compared_is_refused_before_anything_is_compiled():
    with pytest.raises(UsageError, match="no value of remat"):
        compare_remat(["none", "half"], arch="causal_transformer")
    with pytest.raises(UsageError, match="has no option 'remat'"):
        compare_remat(["none"], arch="unet")
    with pytest.raises(UsageError, match="for an architecture"):
        compare_remat(["none"])
    with pytest.raises(TargetError):
        compare_remat(["none"], arch="causal_transformer", chip="h1000")


@pytest.mark.parametrize("more", [["--beside", "none"], ["--top", "3"], ["step.hlo"]])
def test_the_ladder_takes_nothing_that_it_would_ignore(more, capsys):
    assert run(["remat", *more, "--arch", "causal_transformer", "--compare", "none,full"]) == 2
    assert "does not go with --compare" in capsys.readouterr().err


def test_a_list_of_names_is_a_value_of_remat():
    option = next(o for o in registry.get("causal_transformer").options if o.name == "remat")
    assert option.check("names:context+mlp_up") == "names:context+mlp_up"
    assert option.check("offload:no.such-name") == "offload:no.such-name"
    for wrong in ("names", "names:", "names:a++b", "keep:a", "names:a,b"):
        with pytest.raises(UsageError, match="no value of remat"):
            option.check(wrong)
