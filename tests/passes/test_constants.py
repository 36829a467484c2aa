from hloscope.ir import parse_text
from hloscope.passes.constants import Constants, find_constants
from hloscope.pipeline.inputs import KnownLiteral, KnownLiterals
from hloscope.pipeline.rules import Limits

ELIDED = """
HloModule m

FileNames
1 "train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=0 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY e {
  a = f32[256,256] constant({...})
  b = f32[256,256] constant({...})
  small = f32[2] constant({1, 2})
  ROOT s = f32[256,256] add(a, b), metadata={op_name="jit(step)/add" stack_frame_id=1}
}
"""


def test_constants_below_the_floor_are_summed_but_not_listed():
    found = find_constants(parse_text(ELIDED), Limits(), None)
    assert [c.instruction.name for c in found.constants] == ["a", "b"]
    assert found.floor == 64 * 1024
    assert found.total_bytes == 2 * 256 * 256 * 4 + 8


def test_a_lower_limit_lowers_the_floor():
    found = find_constants(parse_text(ELIDED), Limits(constant_bytes=8), None)
    assert [c.instruction.name for c in found.constants] == ["a", "b", "small"]
    assert found.constants[2].kind == "data"


def test_elided_constants_are_unknown_and_say_why():
    found = find_constants(parse_text(ELIDED), Limits(), None)
    assert {c.kind for c in found.constants} == {"unknown"}
    assert found.note == "the dump elides its elements"


def test_what_the_capture_read_fills_them_in():
    literals = KnownLiterals(
        {"a": KnownLiteral("data", None, "d1"), "b": KnownLiteral("data", None, "d1")}
    )
    found = find_constants(parse_text(ELIDED), Limits(), literals)
    assert [(c.kind, c.duplicates) for c in found.constants] == [("data", 1), ("data", 1)]
    assert found.note == ""


def test_what_the_capture_could_not_read_stays_unknown_with_its_note():
    literals = KnownLiterals({"a": KnownLiteral("iota", None, "d")}, "1 of 2 could not be read: b")
    found = find_constants(parse_text(ELIDED), Limits(), literals)
    assert [c.kind for c in found.constants] == ["iota", "unknown"]
    assert found.note == "1 of 2 could not be read: b"


def test_a_constant_without_a_line_takes_that_of_its_first_user():
    constant = find_constants(parse_text(ELIDED), Limits(), None).constants[0]
    assert (constant.location.file, constant.location.line) == ("train.py", 12)


def test_kinds_are_read_from_the_elements_where_they_are_printed():
    text = """
    HloModule m
    ENTRY e {
      z = f32[4] constant({0, 0, 0, 0})
      s = f32[4] constant({2, 2, 2, 2})
      i = s32[4] constant({0, 1, 2, 3})
      d = s32[4] constant({3, 1, 4, 1})
      ROOT t = (f32[4], f32[4], s32[4], s32[4]) tuple(z, s, i, d)
    }
    """
    found = find_constants(parse_text(text), Limits(constant_bytes=1), None)
    assert {c.instruction.name: c.kind for c in found.constants} == {
        "z": "zeros",
        "s": "splat",
        "i": "iota",
        "d": "data",
    }


def test_a_session_without_literals_still_lists_constants(session_of):
    assert len(session_of(ELIDED).get(Constants).constants) == 2
