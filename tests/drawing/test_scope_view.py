"""The scope view: boxes by name, what flows between them, and its limits."""

import re

from oracles.training_steps import KEPT, REMAT

from hloscope.drawing.picture import Role
from hloscope.drawing.scope import draw_scopes


def boxes(picture):
    return {(node.role, node.title): node.lines for node in picture.panels[0].nodes}


def arrows(picture):
    panel = picture.panels[0]
    names = {node.key: (node.role, node.title) for node in panel.nodes}
    return {(names[edge.source], names[edge.target]) for edge in panel.edges}


def test_forward_and_backward_of_a_scope_are_two_boxes_in_one_row(session_of):
    picture = draw_scopes(session_of(KEPT), "step")
    nodes = {(n.role, n.title): n for n in picture.panels[0].nodes}
    forward, backward = nodes[Role.FORWARD, "block"], nodes[Role.BACKWARD, "block"]
    assert forward.row == backward.row
    assert forward.lane < backward.lane
    assert nodes[Role.OTHER, "optimizer"].lane > backward.lane


def test_boxes_count_instructions_flops_and_what_is_read_backward(session_of):
    found = boxes(draw_scopes(session_of(KEPT), "step"))
    # Two products of 2 * 4 * 8 * 8 FLOPs; tanh.1 and dot.2, 4 x 8 of four bytes, are read.
    assert found[Role.FORWARD, "block"] == ("3 instructions, 1.02 KFLOP", "256 B read backward")
    assert found[Role.FORWARD, "embed"] == ("1 instruction", "128 B read backward")
    assert found[Role.BACKWARD, "loss"] == ("1 instruction",)
    again = boxes(draw_scopes(session_of(REMAT), "step"))
    assert again[Role.BACKWARD, "block"][-1] == "2 of them computed again"


def test_arrows_follow_the_values(session_of):
    found = arrows(draw_scopes(session_of(KEPT), "step"))
    assert ((Role.FORWARD, "embed"), (Role.FORWARD, "block")) in found
    assert ((Role.FORWARD, "block"), (Role.BACKWARD, "block")) in found
    assert ((Role.BACKWARD, "block"), (Role.OTHER, "optimizer")) in found


def test_depth_says_how_much_of_a_scope_counts(session_of):
    deep = KEPT.replace("jvp(block)/", "jvp(block)/inner/core/")
    names = {
        depth: {n.title for n in draw_scopes(session_of(deep), "step", depth=depth).panels[0].nodes}
        for depth in (1, 2, 3)
    }
    assert "block" in names[1]
    assert "block/inner" in names[2]
    assert "block/inner/core" in names[3]


def long_chain(count):
    lines = ["HloModule many", "ENTRY e {", "  x.0 = f32[4] parameter(0)"]
    for k in range(1, count + 1):
        where = f"jvp(layer_{k})" if k % 2 else f"transpose(jvp(layer_{k - 1}))"
        lines.append(
            f'  x.{k} = f32[4] negate(x.{k - 1}), metadata={{op_name="jit(f)/{where}/neg"}}'
        )
    lines.append(f"  ROOT r = (f32[4]) tuple(x.{count})")
    return "\n".join([*lines, "}", ""])


def test_a_module_of_many_scopes_stays_under_two_hundred_boxes(session_of):
    picture = draw_scopes(session_of(long_chain(3000)), "many")
    nodes = picture.panels[0].nodes
    assert len(nodes) < 200
    rest = [n for n in nodes if n.title.endswith("more scopes")]
    assert rest
    drawn = sum(int(n.lines[0].split()[0].replace(",", "")) for n in nodes)
    assert drawn == 3000  # nothing is lost where scopes are put together


def test_every_box_has_its_widest_arrows(session_of):
    picture = draw_scopes(session_of(long_chain(60)), "many")
    ends = {end for edge in picture.panels[0].edges for end in (edge.source, edge.target)}
    assert ends == {node.key for node in picture.panels[0].nodes}


def test_without_names_it_says_so_and_folds_by_opcode(session_of):
    text = """HloModule bare
ENTRY e {
  x = f32[4,4] parameter(0)
  a = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[4,4] tanh(a)
  ROOT c = f32[4,4] dot(b, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    picture = draw_scopes(session_of(text), "bare")
    assert "no op_name" in picture.caption[0]
    assert {n.title: n.lines[0] for n in picture.panels[0].nodes} == {
        "dot": "2 instructions, 256 FLOP",
        "tanh": "1 instruction",
    }
    assert picture.panels[0].lanes == ()


def test_a_module_that_does_nothing_gives_a_picture_without_boxes(session_of):
    text = "HloModule nothing\nENTRY e { ROOT x = f32[4] parameter(0) }\n"
    picture = draw_scopes(session_of(text), "nothing")
    assert picture.panels[0].nodes == ()
    assert picture.drawn == 0


def test_a_few_names_do_not_make_scopes(session_of):
    few = "\n".join(
        line.split(", metadata")[0] if "jvp(layer_7)" not in line else line
        for line in long_chain(200).splitlines()
    )
    picture = draw_scopes(session_of(few), "few")
    assert picture.caption[0].startswith("Only 2 instructions carry a scope")


def test_names_without_scopes_are_no_scopes_either(session_of):
    flat = re.sub(r"jit\(f\)/.*/neg", "jit(f)/neg", long_chain(20))
    caption = draw_scopes(session_of(flat), "flat").caption
    assert caption[0].startswith("The op_names of the module hold no scope")
