import pytest

from hloscope.errors import InputError
from hloscope.ir import parse_text
from hloscope.passes.call_graph import CallKind, call_graph

NESTED = """
HloModule nested

inner { p = f32[] parameter(0)  ROOT r = f32[] negate(p) }
outer { p = f32[] parameter(0)  ROOT c = f32[] call(p), to_apply=inner }
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
never { p = f32[] parameter(0)  ROOT c = f32[] call(p), to_apply=inner }

ENTRY e {
  x = f32[8] parameter(0)
  zero = f32[] constant(0)
  sum = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  a = f32[] call(sum), to_apply=outer
  ROOT b = f32[] call(a), to_apply=inner
}
"""


def test_callees_come_before_their_callers_and_the_entry_last():
    graph = call_graph(parse_text(NESTED))
    assert [c.name for c in graph.order] == ["add", "inner", "outer", "e"]


def test_every_call_site_counts_and_unreached_ones_do_not():
    module = parse_text(NESTED)
    callers = call_graph(module).callers[module.computations["inner"]]
    assert sorted((c.caller.computation.name, c.caller.name) for c in callers) == [
        ("e", "b"),
        ("outer", "c"),
    ]


def test_a_reducer_is_applied_to_elements_rather_than_called_once():
    module = parse_text(NESTED)
    (call,) = call_graph(module).callers[module.computations["add"]]
    assert call.kind is CallKind.ELEMENT


def test_only_the_start_of_an_asynchronous_pair_calls():
    text = """
    HloModule asynchronous
    work { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
    ENTRY e {
      x = f32[4] parameter(0)
      s = ((f32[4]), f32[4], u32[]) async-start(x), calls=work
      u = ((f32[4]), f32[4], u32[]) async-update(s), calls=work
      ROOT d = f32[4] async-done(u), calls=work
    }
    """
    module = parse_text(text)
    (call,) = call_graph(module).callers[module.computations["work"]]
    assert call.caller.name == "s"
    assert call.kind is CallKind.ONCE


def test_branches_know_their_position_and_one_branch_alone_is_always_taken():
    text = """
    HloModule branches
    t { p = f32[] parameter(0)  ROOT n = f32[] negate(p) }
    f { p = f32[] parameter(0)  ROOT n = f32[] abs(p) }
    only { p = f32[] parameter(0)  ROOT n = f32[] abs(p) }
    ENTRY e {
      which = pred[] parameter(0)
      zero = s32[] constant(0)
      x = f32[] parameter(1)
      a = f32[] conditional(which, x, x), true_computation=t, false_computation=f
      ROOT b = f32[] conditional(zero, a), branch_computations={only}
    }
    """
    module = parse_text(text)
    calls = {c.callee.name: c for c in call_graph(module).calls[module.entry]}
    assert (calls["t"].kind, calls["t"].position) == (CallKind.BRANCH, 0)
    assert (calls["f"].kind, calls["f"].position) == (CallKind.BRANCH, 1)
    assert calls["only"].kind is CallKind.ONCE


def test_a_computation_that_calls_itself_is_an_error_with_its_name():
    text = """
    HloModule circle
    a { p = f32[] parameter(0)  ROOT c = f32[] call(p), to_apply=b }
    b { p = f32[] parameter(0)  ROOT c = f32[] call(p), to_apply=a }
    ENTRY e { x = f32[] parameter(0)  ROOT c = f32[] call(x), to_apply=a }
    """
    with pytest.raises(InputError, match="calls itself"):
        call_graph(parse_text(text))


def test_an_opcode_that_nobody_has_heard_of_still_calls():
    text = """
    HloModule tomorrow
    work { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
    ENTRY e { x = f32[4] parameter(0)  ROOT f = f32[4] megafusion(x), calls=work }
    """
    module = parse_text(text)
    (call,) = call_graph(module).callers[module.computations["work"]]
    assert call.kind is CallKind.ONCE
