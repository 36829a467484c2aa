"""What reads what, across tuples, barriers, calls and loops."""

from oracles.training_steps import KEPT, REMAT, SCAN

from hloscope.drawing.flow import Flow


def edges(session):
    flow = session.get(Flow)
    return {(source.name, target.name) for source, target in flow.graph.edges}


def test_a_barrier_is_followed_element_by_element(session_of):
    found = edges(session_of(REMAT))
    assert {("add.1", "dot.5"), ("w", "dot.5"), ("dot.5", "tanh.2")} <= found
    # Were the barrier one value, the dot would read each of its operands twice over.
    flow = session_of(REMAT).get(Flow)
    dot = next(node for node in flow.graph if node.name == "dot.5")
    assert [maker.name for maker in flow.makers(dot)] == ["add.1", "w"]


def test_results_of_the_program_and_tuples_are_no_nodes(session_of):
    names = {node.name for node in session_of(KEPT).get(Flow).graph}
    assert names == {
        *("w", "x", "add.1", "dot.1", "tanh.1", "dot.2", "loss"),
        *("back", "dot.3", "mul.1", "dot.4", "new"),
    }


def test_what_a_forward_loop_stacks_is_read_in_the_backward_loop(session_of):
    found = edges(session_of(SCAN))
    assert ("stack", "take") in found
    assert ("take", "tanh.2") in found  # through a bitcast
    assert ("tanh.1", "back") in found  # the loop's result


def test_a_value_that_a_loop_carries_is_a_node_without_a_maker(session_of):
    flow = session_of(SCAN).get(Flow)
    carried = {(node.computation.name, node.name) for node in flow.carried}
    assert {("fwd", "h"), ("bwd", "g")} <= carried
    assert ("bwd", "all") not in carried  # it is handed on as it is
    for node in flow.carried:
        assert list(flow.makers(node)) == []


def test_of_several_results_the_one_that_is_read_is_known(session_of):
    text = """HloModule two
pair {
  a = f32[4] parameter(0)
  b = f32[8] broadcast(a), dimensions={0}
  ROOT r = (f32[4], f32[8]) tuple(a, b)
}
ENTRY e {
  x = f32[4] parameter(0)
  two = (f32[4], f32[8]) fusion(x), kind=kLoop, calls=pair
  second = f32[8] get-tuple-element(two), index=1
  ROOT n = f32[8] negate(second)
}
"""
    flow = session_of(text).get(Flow)
    two, negate = (next(n for n in flow.graph if n.name == name) for name in ("two", "n"))
    assert flow.arrays(two, negate) == ((1,),)


def test_calls_and_branches_are_entered(session_of):
    text = """HloModule branches
yes { p = f32[4] parameter(0) ROOT a = f32[4] negate(p) }
no { p = f32[4] parameter(0) ROOT b = f32[4] abs(p) }
called { p = f32[4] parameter(0) ROOT c = f32[4] tanh(p) }
ENTRY e {
  x = f32[4] parameter(0)
  which = pred[] parameter(1)
  y = f32[4] call(x), to_apply=called
  z = f32[4] conditional(which, y, x), true_computation=yes, false_computation=no
  ROOT s = f32[4] sine(z)
}
"""
    found = edges(session_of(text))
    assert {("x", "c"), ("c", "a"), ("x", "b"), ("a", "s"), ("b", "s")} <= found
