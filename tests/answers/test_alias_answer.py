import pytest

import hloscope
from hloscope.answers import alias
from hloscope.ir import parse_text
from hloscope.subjects import ModuleSubject


def table(report, name):
    return next(table for table in report.tables if table.name == name)


def recorded(fixtures_dir, *names):
    return hloscope.alias(fixtures_dir.joinpath(*names), top=0)


def test_every_parameter_of_a_real_training_step_is_listed(fixtures_dir):
    report = recorded(fixtures_dir, "hlo", "tpu_v6e8_llama3_8b_train_step.hlo")
    rows = table(report, "parameters").rows
    assert len(rows) == 42
    assert [row[0] for row in rows if row[3] == "?"] == ["input_ids", "labels"]
    outcomes = {row[0]: (row[1].value, row[2].value) for row in table(report, "totals").rows}
    assert outcomes["not aliased"] == (2, 2 * 4 * 8192 * 4)  # two of s32[4,8192]
    assert outcomes["aliased"][0] == 40
    assert all(row[5].startswith("result ") for row in rows if row[3] == "yes")
    assert report.summary.startswith("40 of 42 parameters aliased to a result, 7.48 GiB.")


def test_a_changed_dtype_is_told_with_the_convert(fixtures_dir):
    report = recorded(fixtures_dir, "compiled", "today", "gpu_dtype_donate.hlo")
    ((path, role, size, donated, why, result),) = table(report, "parameters").rows
    assert (path, role, size.value, donated) == ("a", "state", 1024 * 1024 * 4, "yes")
    assert result == "-"
    assert why.startswith("dtype differs: goes in as f32, result 0 is bf16 (")
    assert "1 donated and not usable, 4.00 MiB." in report.summary


def test_copies_are_listed_with_their_readers(fixtures_dir):
    report = recorded(fixtures_dir, "compiled", "today", "gpu_reuse_donate.hlo")
    ((moved, path, copy, readers, why),) = table(report, "copies").rows
    assert (moved.value, path, copy, why) == (2 << 20, "a", "copy", "the old value is read later")
    assert readers == "loop_add_fusion, gemm_fusion_dot_general.1"
    ((size, result, argument, how),) = table(report, "missed").rows
    assert (size.value, result, argument) == (2 << 20, "result 1", "b")
    assert how == "same shape, dtype and layout"


def test_rows_that_are_cut_are_counted():
    names = "\n".join(f" p{n} = f32[4] parameter({n})" for n in range(5))
    module = parse_text(
        f"HloModule m\nENTRY e {{\n{names}\n ROOT r = f32[8] concatenate(p0, p1)\n}}"
    )
    report = hloscope.alias(ModuleSubject(module, "m"), top=2)
    assert len(table(report, "parameters").rows) == 2
    assert table(report, "parameters").note == "and 3 more; --top 0 lists all"
    assert report.summary == "0 of 5 parameters aliased to a result."


@pytest.mark.parametrize("top", [0, alias.SHOWN])
def test_a_captured_architecture_is_aliased_whole(capture_arch, top):
    from hloscope.subjects import ArtifactSubject

    report = hloscope.alias(ArtifactSubject(capture_arch("causal_transformer")), top=top)
    rows = table(report, "parameters").rows
    assert all(row[3] == "yes" for row in rows if row[1] == "state")
    totals = {row[0]: row[1].value for row in table(report, "totals").rows}
    leaves = len(capture_arch("causal_transformer").signature.inputs)
    assert sum(totals.values()) == leaves
    assert len(rows) == (leaves if top == 0 else min(leaves, top))


def test_an_alias_to_another_result_than_the_new_value_says_so():
    from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature

    module = parse_text(
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\nENTRY e {\n"
        " p = f32[4] parameter(0)\n g = f32[4] negate(p)\n n = f32[4] add(p, g)\n"
        " ROOT t = (f32[4], f32[4]) tuple(g, n)\n}"
    )

    class Captured(ModuleSubject):
        def inputs(self):
            leaf = InputLeaf("state['w']", Role.STATE, "f32", (4,), True, 0)
            results = (
                OutputLeaf("[0]['grad']", "f32", (4,), 0),
                OutputLeaf("[1]['w']", "f32", (4,), 1),
            )
            return {**super().inputs(), Signature: Signature((leaf,), results)}

    ((*_, why, _),) = table(hloscope.alias(Captured(module, "m"), top=0), "parameters").rows
    assert why == "[0]['grad'] (may), not its new value [1]['w']"
