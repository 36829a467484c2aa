"""A picture as DOT text, through the graphviz package; the same picture gives the same text."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphviz import Digraph, escape, nohtml

from hloscope.drawing.picture import Edge, EdgeKind, Lane, Node, Panel, Picture, Role
from hloscope.units import shorten_middle

__all__ = ["write_dot"]

_FONT = "Helvetica"
_INK, _QUIET, _PAPER, _FRAME = "#24292f", "#57606a", "#ffffff", "#d0d7de"
_FILL: Mapping[Role, str] = {
    Role.FORWARD: "#dce8f5",
    Role.KEPT: "#fcecc4",
    Role.RECOMPUTED: "#f9dcd3",
    Role.BACKWARD: "#e4e1f2",
    Role.ARGUMENT: "#eef0f2",
    Role.FOCUS: "#fcecc4",
    Role.OTHER: "#eef0f2",
}
_LINE: Mapping[Role, str] = {
    Role.FORWARD: "#3f6fa3",
    Role.KEPT: "#b07d12",
    Role.RECOMPUTED: "#c2512f",
    Role.BACKWARD: "#6a5fa8",
    Role.ARGUMENT: "#8c959f",
    Role.FOCUS: "#b07d12",
    Role.OTHER: "#8c959f",
}
_STYLE: Mapping[EdgeKind, str] = {
    EdgeKind.DIRECT: "solid",
    EdgeKind.THROUGH: "dashed",
    EdgeKind.BOUNDARY: "dotted",
}
_COLUMN = 25  # characters of ten points that a column of a laned panel holds
_FREE = 40  # the same of a box that may be wider
_JOINTS, _SLACK = "_.-/", 6
"""Where a name may be broken, and the room that this takes."""

_CAPTION = 128
_TOOLTIP = 180
_LANE_INCHES, _LANE_PITCH = 2.05, 2.45
_LINE_INCHES, _GAP_INCHES = 0.16, 0.14


def write_dot(picture: Picture) -> str:
    """DOT text of a picture, readable by any Graphviz.

    Names of nodes are generated, so that no name of the program can end a
    string or begin an attribute; what is shown is escaped.
    """
    picture = _with_short_keys(picture)
    laned = all(panel.lanes for panel in picture.panels)
    graph = Digraph(
        "picture",
        graph_attr={
            "bgcolor": _PAPER,
            "compound": "true",
            "fontcolor": _INK,
            "fontname": _FONT,
            "fontsize": "10",
            "label": _caption(picture.caption, picture.legend),
            "labeljust": "l",
            "labelloc": "b",
            "margin": "0.1",
            "newrank": "true",
            "nodesep": "0.15",
            "outputorder": "edgesfirst",
            "ranksep": "0.16",
            "rankdir": "TB",
            **({"esep": "+3", "layout": "neato", "sep": "+5", "splines": "true"} if laned else {}),
        },
        node_attr={
            "color": _FRAME,
            "fontcolor": _INK,
            "fontname": _FONT,
            "fontsize": "10",
            "height": "0.3",
            "margin": "0.06,0.03",
            "penwidth": "1",
            "shape": "box",
            "style": "rounded,filled",
        },
        edge_attr={
            "arrowsize": "0.55",
            "fontcolor": _QUIET,
            "fontname": _FONT,
            "fontsize": "8",
        },
    )
    if laned:
        top = 0.0
        for panel in picture.panels:
            top = _write_lanes(graph, panel, top) - 0.25
    else:
        for number, panel in enumerate(picture.panels):
            _write_free(graph, panel, f"cluster_{number}")
    source: str = graph.source
    return source


def _with_short_keys(picture: Picture) -> Picture:
    """The picture with ``n0``, ``n1``... for keys: a colon in one would begin a port."""
    short: dict[str, str] = {}
    for panel in picture.panels:
        for node in panel.nodes:
            short.setdefault(node.key, f"n{len(short)}")
    panels = tuple(
        replace(
            panel,
            nodes=tuple(replace(node, key=short[node.key]) for node in panel.nodes),
            edges=tuple(
                replace(edge, source=short[edge.source], target=short[edge.target])
                for edge in panel.edges
            ),
        )
        for panel in picture.panels
    )
    return replace(picture, panels=panels)


def _write_free(graph: Digraph, panel: Panel, name: str) -> None:
    """Nodes where Graphviz wants them; a group is a frame of its own."""
    with graph.subgraph(name=name) as cluster:
        _frame(cluster, panel.title)
        groups: dict[str, list[Node]] = {}
        for node in panel.nodes:
            groups.setdefault(node.group, []).append(node)
        for number, (title, nodes) in enumerate(groups.items()):
            if not title:
                for node in nodes:
                    _node(cluster, node, _FREE)
                continue
            with cluster.subgraph(name=f"{name}_{number}") as inner:
                _frame(inner, title)
                for node in nodes:
                    _node(inner, node, _FREE)
    for edge in panel.edges:
        _edge(graph, edge)


def _write_lanes(graph: Digraph, panel: Panel, top: float) -> float:
    """Nodes on a grid of lanes and rows below ``top``; gives the grid's lower end, in inches.

    Every node is pinned, so that all Graphviz does is to lead the edges around the boxes.
    """
    name = f"panel{top:.2f}".replace(".", "_").replace("-", "_")
    pitch = {0: 0.0}
    for row in range(1 + max((node.row for node in panel.nodes), default=0)):
        lines = max((_height(n) for n in panel.nodes if n.row == row), default=1)
        pitch[row + 1] = pitch[row] + lines * _LINE_INCHES + _GAP_INCHES
    width = len(panel.lanes) * _LANE_PITCH - (_LANE_PITCH - _LANE_INCHES)
    _pinned(graph, f"{name}_title", f"<b>{_text(panel.title)}</b>", width / 2, top, width, 12)
    for number, lane in enumerate(panel.lanes):
        head = f'<font color="{_LINE[lane.role]}"><b>{_text(lane.title)}</b></font>'
        x = _LANE_INCHES / 2 + number * _LANE_PITCH
        _pinned(graph, f"{name}_lane{number}", head, x, top - 0.3, _LANE_INCHES, 10)
    first = top - 0.5
    for node in panel.nodes:
        height = _height(node) * _LINE_INCHES
        x = _LANE_INCHES / 2 + node.lane * _LANE_PITCH
        middle = (pitch[node.row] + pitch[node.row + 1] - _GAP_INCHES) / 2
        _node(
            graph,
            node,
            _COLUMN,
            fixedsize="true",
            height=f"{height:.3f}",
            pos=f"{x:.3f},{first - middle:.3f}!",
            width=f"{_LANE_INCHES}",
        )
    of = {node.key: node for node in panel.nodes}
    for edge in panel.edges:
        _edge(graph, edge, **_ports(of[edge.source], of[edge.target]))
    return first - pitch[len(pitch) - 1]


def _pinned(
    graph: Digraph, key: str, label: str, x: float, y: float, width: float, size: int
) -> None:
    graph.node(
        key,
        f"<{label}>",
        fixedsize="true",
        fontsize=str(size),
        height="0.2",
        pos=f"{x:.3f},{y:.3f}!",
        shape="plaintext",
        style="",
        width=f"{width:.3f}",
    )


def _ports(source: Node, target: Node) -> Mapping[str, str]:
    """Sides of the boxes at which an edge of the grid leaves and arrives."""
    if source.lane < target.lane:
        return {"tailport": "e", "headport": "w"}
    if source.lane > target.lane:
        return {"tailport": "w", "headport": "e"}
    if abs(source.row - target.row) == 1:
        return {}
    # Beside the first lane there is room on its left, beside the others on their right.
    side = "e" if source.lane else "w"
    return {"tailport": side, "headport": side}


def _cell(rank: Digraph, lane: Lane, node: Node | None, key: str, row: int) -> None:
    """A node, the head of a lane, or the room for one."""
    width = f"{_LANE_INCHES}"
    group = f"{key.partition('_')[0]}_{lane.role}"
    if node is not None:
        _node(rank, node, _COLUMN, width=width, group=group)
    elif row < 0:
        title = f'<<font color="{_LINE[lane.role]}"><b>{_text(lane.title)}</b></font>>'
        rank.node(key, title, shape="plaintext", style="", width=width, height="0.2", tooltip=" ")
    else:
        rank.node(key, "", style="invis", width=width, height="0.05", group=group)


def _frame(cluster: Digraph, title: str) -> None:
    label = f"<<b>{_text(title)}</b>>" if title else ""
    cluster.attr(
        label=label,
        labeljust="l",
        labelloc="t",
        fontsize="11",
        color=_FRAME,
        style="rounded",
        margin="8",
    )


def _node(graph: Digraph, node: Node, characters: int, **attributes: str) -> None:
    lines = [f"<b>{_text(line)}</b>" for line in _title_lines(node.title, characters)]
    for line in node.lines:
        short = _text(shorten_middle(line, characters + 5))
        lines.append(f'<font point-size="9" color="{_QUIET}">{short}</font>')
    graph.node(
        node.key,
        f"<{'<br/>'.join(lines)}>",
        color=_LINE[node.role],
        fillcolor=_FILL[node.role],
        penwidth="2.2" if node.strong else "0.8",
        tooltip=escape(_plain(shorten_middle(node.tooltip or node.title, _TOOLTIP))),
        **attributes,
    )


def _height(node: Node) -> int:
    """Lines of text in a box of a lane."""
    return len(_title_lines(node.title, _COLUMN)) + len(node.lines)


def _title_lines(title: str, characters: int) -> list[str]:
    """A name on one line, or on two if it needs them; cut in its middle if those do not do."""
    name = _plain(title)
    if len(name) <= characters:
        return [name]
    name = shorten_middle(name, 2 * characters - _SLACK)
    joints = [k + 1 for k, c in enumerate(name[:characters]) if c in _JOINTS]
    fit = [k for k in joints if _SLACK <= len(name) - k <= characters]
    break_at = fit[-1] if fit else characters
    return [name[:break_at], name[break_at:]]


def _edge(graph: Digraph, edge: Edge, **attributes: str) -> None:
    if edge.label:
        attributes["label"] = nohtml(escape(_plain(edge.label)))
    if edge.width != 1.0:
        attributes["penwidth"] = f"{edge.width:.2f}"
    graph.edge(
        edge.source,
        edge.target,
        color=_LINE[edge.role],
        style=_STYLE[edge.kind],
        **attributes,
    )


def _caption(sentences: Sequence[str], legend: Iterable[tuple[Role, str]]) -> str:
    """A table of the legend's colours above the sentences."""
    lines: list[str] = []
    for sentence in sentences:
        lines += textwrap.wrap(_plain(sentence), _CAPTION) or [""]
    rows = [
        f'<tr><td align="left"><font color="{_QUIET}">{_text(line)}</font></td></tr>'
        for line in lines
    ]
    colours = "".join(
        f'<td bgcolor="{_FILL[role]}" color="{_LINE[role]}" border="1">{_text(meaning)}</td>'
        for role, meaning in legend
    )
    if colours:
        table = f'<table border="0" cellborder="0" cellspacing="6"><tr>{colours}</tr></table>'
        rows.insert(0, f'<tr><td align="left">{table}</td></tr>')
    if not rows:
        return ""
    return f'<<table border="0" cellspacing="0" cellpadding="1">{"".join(rows)}</table>>'


def _plain(text: str) -> str:
    """The text with what cannot be printed spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _text(text: str) -> str:
    """Any text inside an HTML-like label."""
    return html.escape(_plain(text)) or " "
