"""What a view shows: nodes, edges, lanes and a caption, without a word of how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Edge", "EdgeKind", "Lane", "Node", "Panel", "Picture", "Role"]


class Role(StrEnum):
    """What something in the picture is to the step; chooses its colour."""

    FORWARD = "forward"
    KEPT = "kept"
    RECOMPUTED = "recomputed"
    BACKWARD = "backward"
    ARGUMENT = "argument"
    FOCUS = "focus"
    OTHER = "other"


class EdgeKind(StrEnum):
    """What an edge stands for."""

    DIRECT = "direct"  # the one reads what the other makes
    THROUGH = "through"  # the same, by way of instructions that are not drawn
    BOUNDARY = "boundary"  # between a call and the computation that it calls


@dataclass(frozen=True, slots=True)
class Node:
    """One box.

    Attributes:
        key: Unique within the picture.
        title: Its first line: a name, exactly as the module has it.
        lines: Further lines: the shape, the contents, numbers.
        role: What it is to the step.
        lane: Number of its lane, from 0, in a panel that has lanes.
        row: Its row, from 0, in a panel that has lanes.
        tooltip: What a reader who points at it is told.
        strong: Whether it stands out from others of its role.
        group: Title of the frame inside the panel that holds it, if any.
    """

    key: str
    title: str
    lines: tuple[str, ...] = ()
    role: Role = Role.OTHER
    lane: int = 0
    row: int = 0
    tooltip: str = ""
    strong: bool = False
    group: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """One arrow, from the node that makes a value to one that reads it.

    Attributes:
        source: Key of the one.
        target: Key of the other.
        kind: What it stands for.
        role: Chooses its colour.
        label: A few characters beside it.
        width: Of the line, in points.
    """

    source: str
    target: str
    kind: EdgeKind = EdgeKind.DIRECT
    role: Role = Role.OTHER
    label: str = ""
    width: float = 1.0


@dataclass(frozen=True, slots=True)
class Lane:
    """A column of a panel."""

    title: str
    role: Role


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the picture with a frame and a title.

    Attributes:
        title: Stands above it.
        nodes: In the order in which they are written.
        edges: Between its nodes.
        lanes: Its columns; without any, Graphviz places the nodes by the edges.
    """

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything that is drawn.

    Attributes:
        title: Stands above all panels.
        panels: One below the other.
        caption: Sentences below them.
        legend: Roles and what each means, where no lane says it.
        drawn: Instructions that the nodes stand for.
        left_out: Instructions that were looked at and are not drawn.
        counted: What ``drawn`` and ``left_out`` count, in a few words.
    """

    title: str
    panels: tuple[Panel, ...]
    caption: tuple[str, ...] = ()
    legend: tuple[tuple[Role, str], ...] = ()
    drawn: int = 0
    left_out: int = 0
    counted: str = "instructions"
