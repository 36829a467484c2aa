import io
import sys

import pytest

import hloscope
from hloscope.api import list_modules, load
from hloscope.errors import InputError, Unavailable, UsageError
from hloscope.pipeline.findings import Category, Status
from hloscope.pipeline.rules import Limits
from hloscope.subjects import ModuleSubject

SMALL = """HloModule jit_small

ENTRY main {
  x = f32[4,8] parameter(0), metadata={op_name="x"}
  ROOT r = f32[4,8] negate(x)
}
"""

# Two state leaves: one is aliased to result 0, one is not. One product of
# 2*4*8*16 FLOPs. One constant of 4*16*4 bytes whose elements are left out.
LARGE = """HloModule jit_step, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY main {
  w = f32[8,16] parameter(0), metadata={op_name="state['w']"}
  m = f32[4,16] parameter(1), metadata={op_name="state['m']"}
  x = f32[4,8] parameter(2), metadata={op_name="batch"}
  table = f32[4,16] constant({...})
  y = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[4,16] add(y, table)
  n = f32[4,16] add(z, m)
  ROOT out = (f32[8,16], f32[4,16]) tuple(w, n)
}
"""

BEFORE = LARGE.replace("ENTRY", "// not optimized, and longer than the other one\n\nENTRY")


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "large.hlo"
    path.write_text(LARGE)
    return path


@pytest.fixture
def dump(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "module_0001.jit_small.cpu_after_optimizations.txt").write_text(SMALL)
    (folder / "module_0002.jit_step.cpu_after_optimizations.txt").write_text(LARGE)
    (folder / "module_0003.jit_other.before_optimizations.txt").write_text(BEFORE)
    return folder


def verdict(report, category):
    return next(v for v in report.verdicts if v.category is category)


def test_a_file_is_loaded_once_and_given_back_as_it_is(large):
    subject = load(large)
    assert isinstance(subject, ModuleSubject)
    assert subject.module.name == "jit_step"
    assert load(subject) is subject


def test_an_audit_of_a_dump_has_nine_verdicts_and_a_trust_line(large):
    report = hloscope.audit(str(large))
    assert [v.category for v in report.verdicts] == list(Category)
    assert report.failures == ()
    assert report.trust is not None
    assert report.trust.instructions == 8
    assert str(report.header["target"]).startswith("unknown")


def test_limits_reach_the_rules(large):
    assert verdict(hloscope.audit(large), Category.BAKED_CONSTANTS).status is Status.NONE_FOUND
    report = hloscope.audit(large, limits=Limits(constant_bytes=4 * 16 * 4))
    assert verdict(report, Category.BAKED_CONSTANTS).status is Status.FOUND
    strict = hloscope.audit(large, limits=Limits(constant_bytes=4 * 16 * 4 + 1))
    assert verdict(strict, Category.BAKED_CONSTANTS).status is Status.NONE_FOUND


def test_flops_are_counted_and_an_absent_count_of_xla_is_unknown(large):
    report = hloscope.flops(large)
    comparison = report.tables[0]
    (_, ours, _), (_, theirs, ratio), (_, jaxpr, _) = comparison.rows
    assert ours.value == 2 * 4 * 8 * 16
    assert theirs.value is None
    assert ratio.value is None
    assert jaxpr.value is None
    assert any("without a cost analysis" in note for note in report.notes)


def test_the_donation_check_names_the_leaf_that_is_not_aliased(large):
    report = hloscope.check("donation", large)
    assert report.passed is False
    assert [finding.site.leaf for finding in report.findings] == ["state['m']"]


def test_a_dump_that_names_no_state_cannot_be_checked(tmp_path):
    path = tmp_path / "small.hlo"
    path.write_text(SMALL)
    with pytest.raises(Unavailable, match="cannot tell"):
        hloscope.check("donation", path)


def test_an_unknown_check_is_refused_before_anything_is_loaded():
    with pytest.raises(UsageError, match="there is no check"):
        hloscope.check("donatoin", "missing.hlo")


def test_of_a_folder_the_largest_optimized_module_is_taken_and_that_is_said(dump):
    subject = load(dump)
    assert subject.module.name == "jit_step"
    header = subject.header()
    assert header["module"] == "jit_step (the largest of 3; --list shows all)"
    assert header["stage"] == "after optimizations"


def test_a_module_is_chosen_by_name(dump):
    assert load(dump, module="jit_small").module.name == "jit_small"
    assert load(dump, module="jit_other").header()["stage"] == "before optimizations"
    with pytest.raises(UsageError, match="there is no module 'jit_smal'") as raised:
        load(dump, module="jit_smal")
    assert "jit_small" in (raised.value.hint or "")


def test_several_modules_of_one_file_are_told_apart_by_their_instructions(tmp_path):
    path = tmp_path / "both.hlo"
    path.write_text(SMALL + "\n" + LARGE)
    assert load(path).module.name == "jit_step"


def test_the_modules_of_a_folder_are_listed_without_being_read(dump):
    (dump / "module_0004.jit_broken.cpu_after_optimizations.txt").write_text(
        "HloModule jit_broken\n"
    )
    table = list_modules(dump).tables[0]
    assert [row[0] for row in table.rows] == [
        "module_0001.jit_small",
        "module_0002.jit_step",
        "module_0003.jit_other",
        "module_0004.jit_broken",
    ]
    assert table.rows[0][2].value == len(SMALL)


def test_stdin_is_read_where_the_source_is_a_dash(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LARGE.encode())))
    subject = load("-")
    assert subject.name == "stdin"
    assert subject.module.name == "jit_step"


def test_a_loaded_module_is_listed_alone(large):
    table = list_modules(load(large)).tables[0]
    assert [(row[0], row[1].value) for row in table.rows] == [("jit_step", 8)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "h100"}, "--target does not apply"),
        ({"mesh": {"data": 2}}, "--mesh does not apply"),
        ({"settings": {"batch": "2"}}, "--set does not apply"),
        ({"bad": ("baked-table",)}, "--bad does not apply"),
        ({"xla": {"xla_flag": True}, "timeout": 3.0}, "--xla, --timeout does not apply"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(large, options, said):
    with pytest.raises(UsageError, match=said):
        load(large, **options)


def test_options_that_are_not_set_are_no_objection(large):
    load(large, target=None, mesh={}, settings={}, xla={}, install=False, cache=True, module=None)


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        load(tmp_path / "missing.hlo")


def test_phases_are_told_in_pairs(large):
    events = []

    def progress(phase, seconds, note=None):
        assert note is None
        events.append((phase, seconds is None))

    hloscope.audit(large, progress=progress)
    assert events[:2] == [("read", True), ("read", False)]
    assert ("count_flops", True) in events
    assert events.count(("count_flops", False)) == 1


def test_the_public_names_are_there_and_no_others():
    assert hloscope.__version__[0].isdigit()
    for name in hloscope.__all__:
        assert getattr(hloscope, name) is not None
    assert dir(hloscope) == sorted(hloscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'audits'"):
        hloscope.audits  # noqa: B018
