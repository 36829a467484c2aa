"""What values are made from, and that finding it out is linear in the module."""

import sys

import pytest

from hloscope.chips import CHIPS
from hloscope.ir import Instruction, parse_text
from hloscope.passes.duplicate_products import DuplicateProducts
from hloscope.passes.loop_launches import LoopLaunches
from hloscope.passes.step_invariance import StepInvariance
from hloscope.passes.value_flow import ValueFlow


def sources(session_of, text, name, computation=None):
    """Names of the entry parameters and constants that go into an instruction's arrays."""
    session = session_of(text)
    flow = session.get(ValueFlow)
    wanted: Instruction = next(
        i
        for i in flow.nodes
        if i.name == name and (computation is None or i.computation.name == computation)
    )
    found = []
    for node in flow.nodes[wanted]:
        seen, pending = set(), [node]
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending += flow.inputs[node]
        makers = {flow.makers[node] for node in seen}
        found.append(
            {
                i.name
                for i in makers
                if i.opcode == "constant" or (i.opcode == "parameter" and i.computation.is_entry)
            }
        )
    return found


FUSED = """
HloModule m
f { x = f32[4] parameter(0)  y = f32[4] parameter(1)
  n = f32[4] negate(x)  m = f32[4] negate(y)  ROOT t = (f32[4], f32[4]) tuple(m, n) }
ENTRY e {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  g = (f32[4], f32[4]) fusion(a, b), kind=kLoop, calls=f
  first = f32[4] get-tuple-element(g), index=0
  c = f32[4] constant({1, 2, 3, 4})
  deep = ((f32[4], f32[4]), (), f32[4]) tuple(g, none, c)
  none = () tuple()
  inner = (f32[4], f32[4]) get-tuple-element(deep), index=0
  last = f32[4] get-tuple-element(deep), index=2
  s = ((f32[4]), f32[4], u32[]) copy-start(first)
  d = f32[4] copy-done(s)
  ROOT r = (f32[4], f32[4]) tuple(d, last)
}
"""


def test_each_array_of_a_fusion_has_its_own_sources(session_of):
    text = FUSED.replace("  none = () tuple()\n", "").replace(
        "  deep =", "  none = () tuple()\n  deep ="
    )
    assert sources(session_of, text, "g") == [{"b"}, {"a"}]
    assert sources(session_of, text, "inner") == [{"b"}, {"a"}]
    assert sources(session_of, text, "r") == [{"b"}, {"c"}]
    assert sources(session_of, text, "n") == [{"a"}]


def test_an_asynchronous_call_is_followed_to_its_end(session_of):
    text = """
    HloModule m
    w { x = f32[4] parameter(0)  ROOT n = f32[4] negate(x) }
    ENTRY e {
      a = f32[4] parameter(0)
      s = ((f32[4]), f32[4], u32[]) async-start(a), calls=w
      u = ((f32[4]), f32[4], u32[]) async-update(s)
      ROOT d = f32[4] async-done(u)
    }
    """
    assert sources(session_of, text, "d") == [{"a"}]


def test_what_a_reducer_does_is_no_value_of_its_own(session_of):
    text = """
    HloModule m
    sum { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
    ENTRY e {
      a = f32[4] parameter(0)
      z = f32[] constant(0)
      ROOT r = f32[] reduce(a, z), dimensions={0}, to_apply=sum
    }
    """
    assert sources(session_of, text, "r") == [{"a", "z"}]
    flow = session_of(text).get(ValueFlow)
    assert all(i.computation.name == "e" for i in flow.nodes)


def carried(width: int) -> str:
    """A loop over a tuple of many arrays, each of which a run of the body multiplies."""
    shapes = ", ".join(["s32[]", *["f32[8,8]"] * width])
    taken = "\n".join(
        f"x{k} = f32[8,8] get-tuple-element(p), index={k + 1}\n"
        f"d{k} = f32[8,8] dot(x{k}, x{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for k in range(width)
    )
    given = "\n".join(
        f'a{k} = f32[8,8] parameter({k}), metadata={{op_name="frozen[{k}]"}}' for k in range(width)
    )
    after = "\n".join(
        f"r{k} = f32[8,8] get-tuple-element(l), index={k + 1}\n"
        f"s{k} = f32[8,8] dot(r{k}, a{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        for k in range(width)
    )
    names = "".join(f", d{k}" for k in range(width))
    starts = "".join(f", a{k}" for k in range(width))
    ends = ", ".join(f"s{k}" for k in range(width))
    return f"""HloModule m
    cond {{ p = ({shapes}) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(8)
      ROOT go = pred[] compare(i, n), direction=LT }}
    body {{ p = ({shapes}) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      one = s32[] constant(1)
      next = s32[] add(i, one)
      {taken}
      ROOT t = ({shapes}) tuple(next{names}) }}
    ENTRY e {{
      {given}
      zero = s32[] constant(0)
      init = ({shapes}) tuple(zero{starts})
      l = ({shapes}) while(init), condition=cond, body=body
      {after}
      ROOT r = ({", ".join(["f32[8,8]"] * width)}) tuple({ends})
    }}"""


def calls(session, wanted) -> int:
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        session.get(wanted)
    finally:
        sys.setprofile(before)
    return count


def shared(length: int) -> str:
    """One fusion's computation that many fusions name, each on what the one before made."""
    fusions = "\n".join(
        f"x{k + 1} = f32[8,8] fusion(x{k}, c{k}), kind=kLoop, calls=f\n"
        f"c{k + 1} = f32[8,8] constant({{...}})"
        for k in range(length)
    )
    return f"""HloModule m
    f {{ a = f32[8,8] parameter(0)
      b = f32[8,8] parameter(1)
      ROOT d = f32[8,8] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
    ENTRY e {{ x0 = f32[8,8] parameter(0), metadata={{op_name="frozen"}}
      c0 = f32[8,8] constant({{...}})
      {fusions}
      ROOT r = f32[8,8] negate(x{length}) }}"""


def doubled(length: int) -> str:
    """A chain of products, each of the one before with itself: its tree has 2^length leaves."""
    lines = "\n".join(
        f"x{k + 1} = f32[8,8] dot(x{k}, x{k}), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}"
        for k in range(length)
    )
    return f"""HloModule m
    ENTRY e {{ x0 = f32[8,8] parameter(0), metadata={{op_name="frozen"}}
      {lines}
      ROOT r = f32[8,8] negate(x{length}) }}"""


@pytest.mark.parametrize("wanted", [ValueFlow, StepInvariance, DuplicateProducts, LoopLaunches])
@pytest.mark.parametrize("make", [carried, shared, doubled])
def test_work_grows_with_the_instructions(make, wanted, session_of):
    small, large = (
        calls(session_of(parse_text(make(n)), CHIPS["h100"]), wanted) for n in (100, 400)
    )
    assert large < 4.6 * small


def test_a_fusion_without_operands_is_made_from_what_it_holds(session_of):
    text = """
    HloModule m
    f { c = f32[4] constant({1, 2, 3, 4})  ROOT n = f32[4] negate(c) }
    ENTRY e { g = f32[4] fusion(), kind=kLoop, calls=f  ROOT r = f32[4] negate(g) }
    """
    flow = session_of(text).get(ValueFlow)
    assert not flow.opaque
    assert sources(session_of, text, "r") == [{"c"}]
