"""What `hloscope flops` reports: three answers, the ways between them, and the breakdowns."""

import json

import pytest

import hloscope
from hloscope.api import survey_flops
from hloscope.capture.artifact import Artifact
from hloscope.errors import CaptureError, TargetError, UsageError
from hloscope.ir import InputLeaf, OutputLeaf, Role, Signature
from hloscope.ir.jaxpr_count import JaxprCount, JaxprFlops, JaxprSite, UncountedPrimitive
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.findings import Basis
from hloscope.subjects import ArtifactSubject

TEXT = """HloModule jit_step

body { p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(p), index=1
  y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(step)/jvp(Net)/layer/while/body/closed_call/mlp/dot_general" \
source_file="net.py" source_line=7}
  ROOT t = (s32[], f32[8,8]) tuple(next, y) }
condition { p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(32)
  ROOT lt = pred[] compare(i, n), direction=LT }
ENTRY main {
  w = f32[8,8] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8,8]) tuple(zero, w)
  while.48 = (s32[], f32[8,8]) while(t), condition=condition, body=body
  z = f32[8,8] get-tuple-element(while.48), index=1
  b = bf16[8,8] convert(z)
  d = f32[8,8] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(step)/transpose(jvp(Net))/head/dot_general" source_file="net.py" \
source_line=9}
  ROOT n = f32[8,8] negate(d)
}
"""
PRODUCT = 2 * 8 * 8 * 8


def artifact(**fields):
    flops = JaxprFlops(33 * PRODUCT, 33 * PRODUCT, 33 * PRODUCT)
    leaf = InputLeaf("w", Role.STATE, "f32", (8, 8), True, 0)
    given = {
        "jaxpr": JaxprCount(
            flops,
            {"matmul": flops},
            JaxprFlops(0, 0, 0),
            (
                JaxprSite("matmul", "net.py", 7, False, False, PRODUCT, 32),
                JaxprSite("matmul", "net.py", 9, True, False, PRODUCT, 1),
            ),
        ),
        # The two products, and one each of add, compare, and 64 of convert and negate.
        "xla_cost": {"flops": 2.0 * PRODUCT + 1 + 1 + 64 + 64},
        **fields,
    }
    return ArtifactSubject(
        Artifact(
            hlo_text=TEXT,
            lowered_text=None,
            signature=Signature((leaf,), (OutputLeaf("", "f32", (8, 8), 0),)),
            target="cpu",
            device_kind="cpu",
            devices=1,
            source="net.py:step",
            name="step",
            **given,
        )
    )


def tables_of(report):
    return {table.name: table for table in report.tables}


def test_three_answers_stand_side_by_side_with_their_ratios():
    report = hloscope.flops(artifact())
    rows = tables_of(report)["comparison"].rows
    assert [row[1].value for row in rows] == [33 * PRODUCT, 2 * PRODUCT + 130, 33 * PRODUCT]
    assert [row[2].value for row in rows] == [1.0, 33 * PRODUCT / (2 * PRODUCT + 130), 1.0]
    assert "Products take 33.8 KFLOP" in report.summary
    assert "The jaxpr's count is 33.8 KFLOP, ratio 1.00x." in report.summary


def test_each_way_ends_at_the_products_and_names_what_is_unexplained():
    tables = tables_of(hloscope.flops(artifact()))
    for name in ("from_xla", "from_jaxpr"):
        *steps, whole = (row[0].value for row in tables[name].rows)
        assert sum(steps) == whole == 33 * PRODUCT
        assert any(row[2].startswith("unexplained") for row in tables[name].rows)
    why = {row[2]: row[0].value for row in tables["from_xla"].rows}
    assert why["loops, whose bodies XLA counts once"] == 31 * PRODUCT
    assert why["unexplained"] == 0


def test_a_figure_that_does_not_add_up_is_unexplained_with_its_share():
    subject = artifact(xla_cost={"flops": 1000.0})
    rows = tables_of(hloscope.flops(subject))["from_xla"].rows
    (row,) = (row for row in rows if row[2].startswith("unexplained"))
    assert row[0].value == 2 * PRODUCT + 130 - 1000
    assert row[1].value == row[0].value / (33 * PRODUCT)


def test_a_jaxpr_that_leaves_something_out_gives_a_lower_bound_and_lists_it():
    full = artifact().artifact.jaxpr
    call = UncountedPrimitive("ffi_call", "mine", 3, "f32[8,8] -> f32[8,8]", "a foreign function")
    count = JaxprCount(full.total, full.by_kind, full.recomputed, full.sites, (call,))
    report = hloscope.flops(artifact(jaxpr=count))
    jaxpr = tables_of(report)["comparison"].rows[2]
    assert (jaxpr[1].basis, jaxpr[2].basis) == (Basis.BOUNDED, Basis.BOUNDED)
    (row,) = tables_of(report)["jaxpr.uncounted"].rows
    assert (row[0], row[1].value) == ("ffi_call mine", 3)


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("scope", {"layer/mlp": 32, "head": 1}),
        ("op", {"dot": 33}),
        ("dtype", {"f32 -> f32": 32, "bf16 -> f32": 1}),
        ("kind", {"matrix products": 33}),
        ("source", {"net.py:7": 32, "net.py:9": 1}),
        ("computation", {"body": 32, "main": 1}),
    ],
)
def test_products_are_summed_by_what_is_asked_for(by, groups):
    table = tables_of(hloscope.flops(artifact(), by=by))[f"by.{by}"]
    found = {row[4]: row[0].value for row in table.rows}
    groups = {name.replace("layer/mlp", "Net/layer"): runs for name, runs in groups.items()}
    groups = {name.replace("head", "Net/head"): runs for name, runs in groups.items()}
    assert found == {name: runs * PRODUCT for name, runs in groups.items()}
    assert sum(row[1].value for row in table.rows) == pytest.approx(1)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_the_dearest_instructions_come_first_with_the_loops_that_lead_to_them():
    table = tables_of(hloscope.flops(artifact(), top=1))["instructions"]
    ((flops, share, runs, dtype, text),) = table.rows
    assert (flops.value, runs.value, dtype) == (32 * PRODUCT, 32, "f32 -> f32")
    assert share.value == 32 / 33
    assert text.startswith("while.48 x32 -> y")
    assert "1 more" in table.note


def test_everything_holds_each_fact_in_a_column_of_its_own():
    tables = tables_of(hloscope.flops(artifact(), everything=True))
    assert {f"by.{by}" for by in ("scope", "op", "dtype", "kind", "source", "computation")} <= set(
        tables
    )
    titles = [column.title for column in tables["instructions"].columns]
    first = dict(zip(titles, tables["instructions"].rows[0], strict=True))
    assert first["chain"] == "while.48 x32"
    assert first["source"] == "net.py:7"
    assert first["scope"].endswith("mlp/dot_general")
    assert [row[1] for row in tables["jaxpr"].rows] == ["net.py:7", "net.py:9"]


@pytest.mark.parametrize(
    "wrong",
    [{"by": "colour"}, {"causal": "quarter"}, {"depth": 0}, {"top": 0}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_words_and_numbers_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError):
        hloscope.flops(artifact(), **wrong)


ATTENTION = """HloModule m
ENTRY e {
  q = bf16[2,64,4,16] parameter(0)
  a = (bf16[2,4,64,16], u8[0]) custom-call(q, q, q), custom_call_target="__cudnn$fmhaSoftmax", \
backend_config={"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":\
["2","4","64","64"]},"mask_type":"CAUSAL"}}
  ROOT o = bf16[2,4,64,16] get-tuple-element(a), index=0
}
"""


def test_the_causal_convention_is_printed_and_can_be_changed(tmp_path):
    path = tmp_path / "a.hlo"
    path.write_text(ATTENTION)
    full, half = (hloscope.flops(path, causal=causal) for causal in ("full", "half"))
    counted = [tables_of(report)["comparison"].rows[0][1].value for report in (full, half)]
    assert counted == [4 * 2 * 4 * 64 * 64 * 16, 4 * 2 * 4 * (64 * 65 // 2) * 16]
    assert any("--causal full" in note and "every pair" in note for note in full.notes)
    assert any("--causal half" in note and "the mask leaves" in note for note in half.notes)


def test_the_convention_is_a_step_of_the_ways():
    subject = artifact()
    module = ArtifactSubject(
        Artifact(**{**vars(subject.artifact), "hlo_text": ATTENTION, "xla_cost": {"flops": 0.0}})
    )
    rows = tables_of(hloscope.flops(module, causal="half"))["from_xla"].rows
    *steps, whole = (row[0].value for row in rows)
    assert sum(steps) == whole == 4 * 2 * 4 * (64 * 65 // 2) * 16
    assert any("--causal half" in row[2] for row in rows)


@pytest.mark.parametrize(
    ("op_name", "depth", "scope"),
    [
        ("jit(step)/jvp(down_0)/attention/dot_general", 2, "down_0/attention"),
        ("jit(step)/transpose(jvp(down_0))/attention/dot_general", 2, "down_0/attention"),
        ("jit(step)/transpose(jvp(down_0))/attention/dot_general", 1, "down_0"),
        ("jit(s)/jvp()/while/body/closed_call/checkpoint/mlp/dot_general", 2, "mlp"),
        ("jit(s)/jvp()/while/body/eval_jaxpr/checkpoint/mlp/dot_general", 2, "mlp"),
        ("jit(s)/jit(main)/jvp(net)/mlp/dot_general", 2, "net/mlp"),
        ("jit(s)/a/vmap(jvp(b/c))/rematted_computation/d/dot_general", 9, "a/b/c/d"),
        ("jit(s)/vmap(BTNH,BSNH->BNTS)/dot_general;jit(s)/other/dot", 9, ""),
        ("jit(s)/dot_general", 2, ""),
        ("", 2, ""),
    ],
)
def test_a_scope_is_what_the_user_named(op_name, depth, scope):
    found = collapse_scope(op_name, depth)
    assert found == (scope if "BTNH" not in op_name else "BTNH,BSNH->BNTS")


@pytest.fixture
def captured(monkeypatch):
    """Stands in for compiling: ``unet`` fails, every other architecture is the same step."""
    calls = []

    def load(_=None, *, progress, **options):
        assert progress is None or callable(progress)
        calls.append(options)
        if options["arch"] == "unet":
            raise CaptureError("the step could not be compiled", phase="compile")
        return artifact()

    monkeypatch.setattr("hloscope.comparisons.load", load)
    return calls


def test_the_survey_has_a_row_for_each_architecture_and_a_failure_costs_only_its_own(captured):
    notes = []
    report = survey_flops(
        target="h100", preset="smoke", progress=lambda *news: notes.append(news[2:])
    )
    rows = {row[0]: row[1:] for row in report.tables[0].rows}
    xla, ours, jaxpr, ratio, residue = rows["causal_transformer"]
    assert (ours.value, jaxpr.value) == (33 * PRODUCT, 33 * PRODUCT)
    assert ratio.value == ours.value / xla.value
    assert residue.value == 0
    assert {cell.value for cell in rows["unet"]} == {None}
    assert "could not be compiled" in rows["unet"][0].name
    assert report.failures == ("unet: the step could not be compiled",)
    assert {options["target"] for options in captured} == {"h100"}
    assert ("unet",) in notes


def test_what_is_wrong_for_all_of_them_is_an_error_and_no_table():
    with pytest.raises(TargetError):
        survey_flops(target="h1000")
    with pytest.raises(UsageError):
        survey_flops(target="cpu:4", mesh={"data": 3})


@pytest.mark.usefixtures("captured")
def test_the_command_exits_2_when_one_failed_and_prints_the_rest():
    from hloscope.cli import main

    assert main(["flops", "--all"]) == 2
    assert main(["flops", "--all", "--json"]) == 2


@pytest.mark.parametrize(
    "more", [["step.hlo"], ["--arch", "unet"], ["--by", "op"], ["--top", "3"], ["--list"]]
)
def test_all_goes_with_no_single_program(capsys, more):
    from hloscope.cli import main

    assert main(["flops", "--all", *more]) == 2
    assert "does not go with --all" in capsys.readouterr().err


def test_the_command_line_reaches_every_view(tmp_path, capsys):
    from hloscope.cli import main

    path = tmp_path / "a.hloscope"
    artifact().artifact.save(path)
    assert main(["flops", str(path), "--by", "scope", "--depth", "1", "--top", "5"]) == 0
    out = capsys.readouterr().out
    assert "By scope" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert main(["flops", str(path), "--top", "1"]) == 0
    assert "while.48 x32 -> y" in capsys.readouterr().out
    assert main(["flops", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"from_xla", "instructions", "by.scope"} <= {t["name"] for t in document["tables"]}
