"""DOT text: escaped, complete, and the same every time."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from oracles.training_steps import KEPT, REMAT

from hloscope.drawing.dot import write_dot
from hloscope.drawing.picture import Edge, EdgeKind, Lane, Node, Panel, Picture, Role
from hloscope.drawing.remat import Side, draw_remat
from hloscope.drawing.render import render
from hloscope.drawing.scope import draw_scopes

HOSTILE = [
    'a"; b [label="owned',
    "back\\slash \\N \\G \\L \\l",
    "<b>bold</b> & <i>",
    "two\nlines\tand\x00a nul",
    "name:port:n",
    "-> b; subgraph {",
    "]]></svg><script>alert(1)</script>",
    "\u202e\U0001f600 \u00e9",
    "",
]
SVG = "{http://www.w3.org/2000/svg}"


def picture_of(names, lanes=()):
    nodes = tuple(
        Node(
            f"key {name}", name, (name,), lane=0, row=row, tooltip=name, group="" if lanes else name
        )
        for row, name in enumerate(names)
    )
    edges = tuple(Edge(a.key, b.key, EdgeKind.THROUGH, label=a.title) for a, b in pairwise(nodes))
    panel = Panel(names[0], nodes, edges, lanes)
    return Picture(names[0], (panel,), (names[0],), ((Role.FORWARD, names[0]),))


def texts(svg):
    root = ElementTree.fromstring(svg)
    return ["".join(e.itertext()) for e in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("lanes", [(), (Lane("l", Role.OTHER),)], ids=["free", "laned"])
def test_hostile_names_are_shown_and_do_nothing(name, lanes):
    svg = render(write_dot(picture_of([name, "plain"], lanes)), "svg")
    root = ElementTree.fromstring(svg)  # well-formed
    assert not list(root.iter(f"{SVG}script"))
    nodes = [g for g in root.iter(f"{SVG}g") if g.get("class") == "node"]
    boxes = [g for g in nodes if g.find(f"{SVG}title").text in ("n0", "n1")]
    assert len(boxes) == 2
    assert sum(g.get("class") == "edge" for g in root.iter(f"{SVG}g")) == 1
    shown = "".join(texts(svg)).replace("\xa0", " ")
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    assert "plain" in shown
    for word in plain.split():
        assert word in shown or len(plain) > 25  # long ones are cut or broken


def test_what_is_too_long_is_broken_or_cut_in_its_middle_and_whole_in_the_tooltip():
    name = "%a_rather_long_name_of_a_fusion_that_does_not_fit_into_any_box_at_all.123"
    node = Node("key", name, (name,), tooltip=name)
    dot = write_dot(Picture("", (Panel("", (node,), (), (Lane("l", Role.OTHER),)),)))
    assert f'tooltip="{name}"' in dot
    shown = texts(render(dot, "svg"))
    assert max(map(len, shown)) < len(name) / 2
    assert sum(text.endswith("123") for text in shown) == 2


def test_a_name_of_two_lines_is_whole():
    name = "%loop_dynamic_update_slice_fusion.13"
    shown = texts(render(write_dot(picture_of([name], (Lane("l", Role.OTHER),))), "svg"))
    assert "%loop_dynamic_update_" in shown
    assert "slice_fusion.13" in shown


def test_every_box_and_arrow_is_in_the_image(session_of):
    picture = draw_remat(Side("with", session_of(REMAT)), Side("without", session_of(KEPT)))
    svg = render(write_dot(picture), "svg")
    root = ElementTree.fromstring(svg)
    arrows = sum(g.get("class") == "edge" for g in root.iter(f"{SVG}g"))
    assert arrows == sum(len(panel.edges) for panel in picture.panels)
    shown = texts(svg)
    for panel in picture.panels:
        for node in panel.nodes:
            assert node.title in shown
    assert {"forward", "kept for backward", "computed again", "nothing computed again"} <= set(
        shown
    )


def test_an_empty_picture_is_an_image(session_of):
    text = "HloModule nothing\nENTRY e { ROOT x = f32[4] parameter(0) }\n"
    dot = write_dot(draw_scopes(session_of(text), "nothing"))
    assert b"<svg" in render(dot, "svg")


def test_boxes_of_one_lane_do_not_overlap(session_of):
    picture = draw_remat(Side("with", session_of(REMAT)), Side("without", session_of(KEPT)))
    plain = render(write_dot(picture), "svg").decode()
    assert plain.count("<title>n0</title>") == 1
    seen = {}
    for line in write_dot(picture).splitlines():
        if " pos=" in line and line.strip().startswith("n"):
            x, y = line.split('pos="')[1].split("!")[0].split(",")
            height = float(line.split("height=")[1].split(" ")[0])
            seen.setdefault(x, []).append((float(y), height))
    assert seen
    for boxes in seen.values():
        boxes.sort()
        for (low, below), (high, above) in pairwise(boxes):
            assert high - low >= (below + above) / 2


DRAW = """
import sys
from hloscope.drawing.around import draw_around
from hloscope.drawing.dot import write_dot
from hloscope.drawing.remat import Side, draw_remat
from hloscope.drawing.scope import draw_scopes
from hloscope.ir import parse_text
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.subjects import ModuleSubject
load_passes()
module = parse_text(sys.stdin.read())
session = Session(ModuleSubject(module, "step"))
for picture in (
    draw_remat(Side("step", session)),
    draw_scopes(session, "step", depth=1),
    draw_around(session, "step", module.entry.root.name),
):
    sys.stdout.write(write_dot(picture))
"""


def test_the_same_module_gives_the_same_bytes_in_any_process(fixtures_dir):
    text = (fixtures_dir / "compiled" / "today" / "cpu_remat_unroll.hlo").read_text()

    def draw(seed):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", DRAW],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        return done.stdout

    first = draw("1")
    assert first.count("digraph") == 3
    assert draw("2") == first


def test_keys_of_the_picture_do_not_reach_the_text():
    picture = picture_of(["a", "b"])
    renamed = replace(
        picture,
        panels=tuple(
            replace(
                panel,
                nodes=tuple(replace(n, key=f"other:{n.key}") for n in panel.nodes),
                edges=tuple(
                    replace(e, source=f"other:{e.source}", target=f"other:{e.target}")
                    for e in panel.edges
                ),
            )
            for panel in picture.panels
        ),
    )
    assert write_dot(renamed) == write_dot(picture)
