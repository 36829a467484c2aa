"""The around view: neighbours, tuples, bodies of fusions, and names that are not there."""

import pytest
from oracles.training_steps import KEPT, REMAT, SCAN

from hloscope.drawing.around import draw_around
from hloscope.drawing.picture import EdgeKind, Role
from hloscope.errors import UsageError

FUSED = """HloModule fused
inner {
  p = f32[4] parameter(0)
  t = f32[4] tanh(p)
  ROOT m = f32[4] multiply(t, p)
}
ENTRY e {
  x = f32[4] parameter(0), metadata={op_name="x"}
  y = f32[4] abs(x)
  fusion.12 = f32[4] fusion(y), kind=kLoop, calls=inner
  ROOT z = f32[4] negate(fusion.12)
}
"""


def drawn(picture):
    return {node.title.lstrip("%"): node for node in picture.panels[0].nodes}


def edges(picture):
    panel = picture.panels[0]
    names = {node.key: node.title.lstrip("%") for node in panel.nodes}
    return {(names[e.source], names[e.target], e.kind) for e in panel.edges}


def test_neighbours_up_to_so_many_hops_and_no_further(session_of):
    session = session_of(KEPT)
    assert set(drawn(draw_around(session, "s", "tanh.1", hops=1))) == {
        *("dot.1", "tanh.1", "dot.2", "mul.1"),
    }
    two = set(drawn(draw_around(session, "s", "tanh.1", hops=2)))
    assert {"add.1", "w", "back", "loss", "dot.4"} <= two
    # What else the operands' operands feed is no neighbour.
    assert "new" not in two
    assert set(drawn(draw_around(session, "s", "tanh.1", hops=0))) == {"tanh.1"}


def test_of_a_tuple_only_the_element_on_the_way_is_followed(session_of):
    found = drawn(draw_around(session_of(REMAT), "s", "dot.5", hops=3))
    assert {"x.again", "w.again", "barrier", "guarded"} <= set(found)
    assert found["x.again"].lines == ("f32[4,8]", "element 1")
    up = drawn(draw_around(session_of(REMAT), "s", "add.1", hops=3))
    assert "w.again" not in up  # another element of the tuple that add.1 is in


def test_the_body_of_a_fusion_is_drawn_in_a_frame(session_of):
    picture = draw_around(session_of(FUSED), "s", "%fusion.12", hops=1)
    found = drawn(picture)
    assert set(found) == {"y", "fusion.12", "z", "p", "t", "m"}
    assert found["t"].group == "inside %fusion.12 (calls %inner)"
    assert found["y"].group == ""
    assert {("y", "p", EdgeKind.BOUNDARY), ("m", "fusion.12", EdgeKind.BOUNDARY)} <= edges(picture)
    assert ("y", "fusion.12", EdgeKind.DIRECT) not in edges(picture)  # it goes in at p
    assert found["fusion.12"].role is Role.FOCUS


def test_a_computation_s_ends_lead_to_its_caller(session_of):
    picture = draw_around(session_of(FUSED), "s", "t", hops=3)
    assert {("y", "p", EdgeKind.BOUNDARY), ("m", "fusion.12", EdgeKind.BOUNDARY)} <= edges(picture)
    assert drawn(picture)["y"].group == "the entry"


def test_a_loop_s_parameter_leads_to_what_the_loop_is_given(session_of):
    found = drawn(draw_around(session_of(SCAN), "s", "take", hops=4))
    assert {"all", "p", "on", "kept"} <= set(found)


def test_colours_say_the_part_of_the_step(session_of):
    found = drawn(draw_around(session_of(REMAT), "s", "mul.1", hops=2))
    assert found["tanh.2"].role is Role.RECOMPUTED
    assert found["dot.3"].role is Role.BACKWARD
    picture = draw_around(session_of(REMAT), "s", "mul.1", hops=2)
    assert {role for role, _ in picture.legend} == {node.role for node in drawn(picture).values()}


def test_an_unknown_name_is_an_error_that_names_near_ones(session_of):
    with pytest.raises(UsageError, match=r"no instruction %tanh\.9") as raised:
        draw_around(session_of(KEPT), "s", "tanh.9")
    assert "tanh.1" in raised.value.hint


def test_a_hub_is_cut_and_the_rest_counted(session_of):
    users = "".join(f"  n.{k} = f32[4] negate(x)\n" for k in range(100))
    whole = f"  x = f32[4] parameter(0)\n{users}  ROOT a = f32[4] abs(x)\n"
    text = f"HloModule hub\nENTRY e {{\n{whole}}}\n"
    picture = draw_around(session_of(text), "s", "x", hops=1)
    assert len(picture.panels[0].nodes) <= 60
    assert picture.left_out + picture.drawn == 102
    assert any("more neighbour" in sentence for sentence in picture.caption)


def test_a_name_in_several_computations_is_the_outermost_and_says_so(session_of):
    text = FUSED.replace("  y = f32[4] abs(x)", "  t = f32[4] abs(x)").replace(
        "fusion(y)", "fusion(t)"
    )
    picture = draw_around(session_of(text), "s", "t", hops=1)
    assert drawn(picture)["t"].lines[1] == "abs"
    assert "1 other computation" in " ".join(picture.caption)
