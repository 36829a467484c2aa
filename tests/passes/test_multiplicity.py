import pytest

from hloscope.errors import InputError
from hloscope.ir import parse_text
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.pipeline.findings import Basis

PROGRAM = """
HloModule program
leaf {{ p = f32[] parameter(0)  ROOT r = f32[] negate(p) }}
mid {{
  p = f32[] parameter(0)
  f = f32[] fusion(p), kind=kLoop, calls=leaf
  ROOT g = f32[] fusion(f), kind=kLoop, calls=leaf
}}
cond {{
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  n = s32[] {limit}
  ROOT go = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[] get-tuple-element(p), index=1
  y = f32[] call(x), to_apply=mid
  ROOT t = (s32[], f32[]) tuple(next, y)
}}
yes {{ p = f32[] parameter(0)  ROOT c = f32[] call(p), to_apply=mid }}
no {{ p = f32[] parameter(0)  ROOT r = f32[] abs(p) }}
ENTRY e {{
  zero = s32[] constant(0)
  x = f32[] parameter(0)
  init = (s32[], f32[]) tuple(zero, x)
  w = (s32[], f32[]) while(init), condition=cond, body=body
  y = f32[] get-tuple-element(w), index=1
  which = pred[] parameter(1)
  ROOT c = f32[] conditional(which, y, y), true_computation=yes, false_computation=no
}}
"""
KNOWN = PROGRAM.format(limit="constant(5)")
UNKNOWN = PROGRAM.format(limit="convert(x)")


def times_of(session_of, text):
    return {c.name: t for c, t in session_of(text).get(Multiplicity).items()}


def test_counts_multiply_through_loops_calls_and_fusions(session_of):
    times = times_of(session_of, KNOWN)
    assert times["body"] == Times(5, 5, 5)
    assert times["cond"] == Times(6, 6, 6)  # once more than the body
    # mid: five times from the loop, and once more if the branch is taken; leaf twice as often.
    assert times["mid"] == Times(5, 6, 6)
    assert times["leaf"] == Times(10, 12, 12)
    assert times["no"] == Times(0, 1, 1)


def test_a_loop_of_unknown_length_leaves_the_top_open_and_counts_once_nominally(session_of):
    times = times_of(session_of, UNKNOWN)
    assert times["body"] == Times(0, None, 1)
    assert times["body"].basis is Basis.UNKNOWN
    assert times["cond"] == Times(1, None, 2)
    assert times["leaf"] == Times(0, None, 4)


def test_the_chain_says_how_a_count_comes_about(session_of):
    multiplicity = session_of(KNOWN).get(Multiplicity)
    by_name = {c.name: c for c in multiplicity}
    assert multiplicity.chain(by_name["e"]) == ""
    assert multiplicity.chain(by_name["body"]) == "w x5"
    assert multiplicity.chain(by_name["mid"]) == "w x5 -> y (and 1 more)"
    assert multiplicity.chain(by_name["no"]) == "c x0..1"


def test_a_product_with_never_is_never_even_where_the_other_side_is_open():
    assert Times(0, None, 1) * Times(0, 0, 0) == Times(0, 0, 0)


def test_ten_thousand_computations_deep_is_no_recursion(session_of):
    depth = 10_000
    links = "\n".join(
        f"c{n} {{ p = f32[] parameter(0)  ROOT r = f32[] call(p), to_apply=c{n + 1} }}"
        for n in range(depth)
    )
    text = f"""HloModule deep
    c{depth} {{ p = f32[] parameter(0)  ROOT r = f32[] negate(p) }}
    {links}
    ENTRY e {{ x = f32[] parameter(0)  ROOT r = f32[] call(x), to_apply=c0 }}
    """
    multiplicity = session_of(text).get(Multiplicity)
    deepest = next(c for c in multiplicity if c.name == f"c{depth}")
    assert multiplicity[deepest] == Times(1, 1, 1)
    assert multiplicity.chain(deepest).startswith("... -> ")


def test_a_computation_that_calls_the_next_twice_is_counted_not_walked(session_of):
    # 2^50 walks would never end; 2^50 as a number is at hand at once.
    text = doubling(50)
    multiplicity = session_of(text).get(Multiplicity)
    last = next(c for c in multiplicity if c.name == "c50")
    assert multiplicity[last].exact == 2**50


def test_more_executions_than_any_machine_makes_are_refused(session_of):
    with pytest.raises(Exception, match=r"2\^63") as caught:
        session_of(doubling(200)).get(Multiplicity)
    assert isinstance(getattr(caught.value, "error", caught.value), InputError)


def doubling(depth: int) -> str:
    links = "\n".join(
        f"c{n} {{ p = f32[] parameter(0)  a = f32[] call(p), to_apply=c{n + 1}"
        f"  ROOT r = f32[] call(a), to_apply=c{n + 1} }}"
        for n in range(depth)
    )
    return f"""HloModule doubling
    c{depth} {{ p = f32[] parameter(0)  ROOT r = f32[] negate(p) }}
    {links}
    ENTRY e {{ x = f32[] parameter(0)  ROOT r = f32[] call(x), to_apply=c0 }}
    """


def test_a_computation_that_is_handed_to_a_custom_call_runs_an_unknown_number_of_times(session_of):
    text = """
    HloModule opaque
    work { p = f32[] parameter(0)  ROOT r = f32[] negate(p) }
    ENTRY e {
      x = f32[] parameter(0)
      ROOT r = f32[] custom-call(x), custom_call_target="Sorter", called_computations={work}
    }
    """
    assert times_of(session_of, text)["work"] == Times(0, None, 1)


def test_parsed_modules_keep_computations_that_never_run_out_of_it(session_of):
    text = """
    HloModule dead
    dead { p = f32[] parameter(0)  ROOT r = f32[] negate(p) }
    ENTRY e { ROOT x = f32[] parameter(0) }
    """
    assert [c.name for c in session_of(parse_text(text)).get(Multiplicity)] == ["e"]
