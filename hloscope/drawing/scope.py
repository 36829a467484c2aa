"""The ``scope`` view: a program folded onto the names that its code gives to its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import networkx as nx

from hloscope import units
from hloscope.drawing.contents import Weight, weight_of
from hloscope.drawing.figures import products_text
from hloscope.drawing.flow import Value, shape_at
from hloscope.drawing.picture import Edge, Lane, Node, Panel, Picture, Role
from hloscope.drawing.step_flow import StepFlow, user_scope
from hloscope.drawing.view import DEPTH
from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import named_origin
from hloscope.passes.execution import Execution
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.flops.totals import NOTHING, FlopTotal
from hloscope.passes.step_parts import StepPart
from hloscope.pipeline.audit import plural
from hloscope.pipeline.session import Session

__all__ = ["draw_scopes"]

_MOST = 48  # scopes; each has three boxes at most, so that a picture stays under 200
_LABELLED = 12  # edges with their bytes beside them, where there is room for it
_WIDEST = 2.6  # points
_LINE = 30  # characters that fit into a box
_NAMED_SHARE = 0.1  # below this share of named instructions a folding by name shows nothing
_NO_SCOPE = "(no scope)"
_LANES = (
    Lane("forward", Role.FORWARD),
    Lane("backward", Role.BACKWARD),
    Lane("outside both", Role.OTHER),
)
_LANE_OF = {
    StepPart.FORWARD: 0,
    StepPart.BACKWARD: 1,
    StepPart.REPLAYED: 1,
    StepPart.OTHER: 2,
}

Key = tuple[str, int]
"""Name of a group and number of its lane."""


@dataclass(slots=True)
class _Group:
    """What one box stands for."""

    name: str
    lane: int
    instructions: int = 0
    again: int = 0
    flops: FlopTotal = NOTHING
    members: int = 1
    kept: int = 0
    levels: list[int] = field(default_factory=list)
    reads: dict[Key, int] = field(default_factory=dict)


def draw_scopes(session: Session, title: str, *, depth: int = DEPTH) -> Picture:
    """Draw scopes as boxes, and the bytes that flow between them.

    Args:
        session: Gives the flow and the FLOPs.
        title: Stands above the picture.
        depth: Parts of a scope that are kept.
    """
    step = session.get(StepFlow)
    work = [node for node in step.order if node.opcode != "parameter"]
    names = {node: _scope(node, depth) for node in work}
    named = sum(name != _NO_SCOPE for name in names.values())
    by_name = named > _NAMED_SHARE * len(work)
    if not by_name:
        names = {node: node.opcode for node in work}
    groups = _grouped(session, step, names, laned=by_name)
    merged = _merged(groups)
    edges, left_edges = _edges(merged)
    models = sorted({model for group in groups.values() for model in group.flops.models})
    caption = [] if by_name else [_without_names(work)]
    caption.append(_sentence(step, work, groups, merged, by_name=by_name))
    if left_edges:
        caption.append(
            f"{plural(left_edges, 'thinner arrow')} not drawn; every box has its widest in and out."
        )
    caption.append(
        "An arrow is as wide as the bytes of the arrays that the one makes and the other reads, "
        "each counted once. Arguments are not drawn. FLOPs are those of products, over all runs"
        + (f" (modelled: {', '.join(models)})." if models else ".")
    )
    panel = _laned(title, merged, edges) if by_name else _free(title, merged, edges)
    return Picture(
        title=title,
        panels=(panel,),
        caption=tuple(caption),
        drawn=len(work),
        left_out=0,
        counted="launched instructions",
    )


def _scope(node: Instruction, depth: int) -> str:
    scope = user_scope(named_origin(node).op_name)
    return "/".join(scope.split("/")[:depth]) or _NO_SCOPE


def _grouped(
    session: Session, step: StepFlow, names: Mapping[Instruction, str], *, laned: bool
) -> dict[Key, _Group]:
    groups: dict[Key, _Group] = {}

    def group_of(node: Instruction) -> _Group:
        key = (names[node], _LANE_OF[step.parts[node]] if laned else 0)
        return groups.setdefault(key, _Group(*key))

    values: dict[tuple[Key, Key], dict[Value, None]] = {}
    kept: dict[Key, dict[Value, None]] = {}
    levels = _levels(step)
    for node in names:
        group = group_of(node)
        group.instructions += 1
        if weight_of(node) > Weight.MOVES:
            group.levels.append(levels[node])
        group.again += step.parts[node] is StepPart.REPLAYED
        for maker in step.flow.makers(node):
            if maker not in names:
                continue
            source = group_of(maker)
            if source is not group:
                crossing = values.setdefault(
                    ((source.name, source.lane), (group.name, group.lane)), {}
                )
                arrays = dict.fromkeys((maker, i) for i in step.flow.arrays(maker, node))
                crossing |= arrays
                if laned and (source.lane, group.lane) == (0, 1):
                    kept.setdefault((source.name, source.lane), {}).update(arrays)
    for (source_key, key), crossing in values.items():
        groups[key].reads[source_key] = _bytes(crossing)
    for key, crossing in kept.items():
        groups[key].kept = _bytes(crossing)
    execution = session.get(Execution)
    for row in session.get(FlopLedger).rows:
        launch = execution.launch_of(row.instruction)
        if launch is not None and launch in names:
            group_of(launch).flops += row.total
    return groups


def _bytes(values: Mapping[Value, None]) -> int:
    return sum(shape_at(maker.shape, index).bytes for maker, index in values)


def _levels(step: StepFlow) -> Mapping[Instruction, int]:
    """The longest way to each node from one that reads nothing; 0 where the flow has circles."""
    graph = step.flow.graph
    levels = dict.fromkeys(graph, 0)
    if nx.is_directed_acyclic_graph(graph):
        for node in nx.topological_sort(graph):
            levels[node] = 1 + max((levels[m] for m in step.flow.makers(node)), default=0)
    return levels


def _merged(groups: Mapping[Key, _Group]) -> dict[Key, _Group]:
    """The groups, the smallest of them put together where there are too many."""
    sizes: dict[str, tuple[int, int]] = {}
    for group in groups.values():
        flops, count = sizes.get(group.name, (0, 0))
        sizes[group.name] = flops + group.flops.nominal, count + group.instructions
    if len(sizes) <= _MOST:
        return dict(groups)
    order = sorted(sizes, key=lambda name: (sizes[name], name), reverse=True)
    rest = set(order[_MOST - 1 :])
    name = f"{len(rest)} more"

    def key_of(key: Key) -> Key:
        return (name, key[1]) if key[0] in rest else key

    merged: dict[Key, _Group] = {}
    for key, group in groups.items():
        new = key_of(key)
        into = merged.setdefault(new, _Group(*new, members=0))
        into.instructions += group.instructions
        into.again += group.again
        into.flops += group.flops
        into.kept += group.kept
        into.levels += group.levels
        into.members += 1
        for source, size in group.reads.items():
            if key_of(source) != new:
                into.reads[key_of(source)] = into.reads.get(key_of(source), 0) + size
    return merged


def _edges(groups: Mapping[Key, _Group]) -> tuple[list[tuple[Key, Key, int]], int]:
    """The widest edges, with the widest into and out of every group; how many are left out."""
    every = [
        (source, key, size) for key, group in groups.items() for source, size in group.reads.items()
    ]
    every.sort(key=lambda edge: (-edge[2], edge[:2]))
    chosen = dict.fromkeys(every[: len(groups)])
    into: dict[Key, tuple[Key, Key, int]] = {}
    out_of: dict[Key, tuple[Key, Key, int]] = {}
    for edge in every:
        out_of.setdefault(edge[0], edge)
        into.setdefault(edge[1], edge)
    chosen |= dict.fromkeys((*into.values(), *out_of.values()))
    return list(chosen), len(every) - len(chosen)


def _laned(
    title: str, groups: Mapping[Key, _Group], edges: Sequence[tuple[Key, Key, int]]
) -> Panel:
    """Forward and backward of one scope side by side."""
    rows = _rows(groups)
    used = sorted({group.lane for group in groups.values()})
    nodes = tuple(
        _node(key, groups[key], used.index(key[1]), rows[key])
        for key in sorted(groups, key=lambda key: (key[1], rows[key]))
    )
    lanes = tuple(_LANES[lane] for lane in used)
    if used == [2]:
        lanes = (replace(_LANES[2], title="no forward or backward pass"),)
    return Panel(title, nodes, tuple(_drawn(edges, laned=True)), lanes)


def _rows(groups: Mapping[Key, _Group]) -> Mapping[Key, int]:
    """Rows by the way from the step's beginning; both passes of one scope in one row."""
    level = {key: median(group.levels or [0]) for key, group in groups.items()}
    both = [name for name, lane in groups if lane == 1 and (name, 0) in groups]

    def place(name: str) -> float:
        if (name, 0) in groups:
            return level[name, 0]
        # Only backward: beside the forward pass of what runs backward at the same time.
        own = level[name, 1]
        near = min(both, key=lambda each: (abs(level[each, 1] - own), each), default=None)
        return level[near, 0] if near is not None else -own

    names = dict.fromkeys(name for name, lane in groups if lane < 2)
    order = sorted(names, key=lambda name: (place(name), (name, 0) not in groups, name))
    row_of = {name: row for row, name in enumerate(order)}
    outside = sorted((key for key in groups if key[1] == 2), key=lambda key: (level[key], key))
    rows = {key: row_of[key[0]] for key in groups if key[1] < 2}
    return rows | {key: row for row, key in enumerate(outside)}


def _free(title: str, groups: Mapping[Key, _Group], edges: Sequence[tuple[Key, Key, int]]) -> Panel:
    nodes = tuple(_node(key, group, 0, 0, Role.OTHER) for key, group in groups.items())
    return Panel(title, nodes, tuple(_drawn(edges, laned=False)))


def _node(key: Key, group: _Group, lane: int, row: int, role: Role | None = None) -> Node:
    noun = "instruction" if group.instructions == 1 else "instructions"
    lines = [f"{units.count(group.instructions)} {noun}"]
    if products := products_text(group.flops):
        together = f"{lines[0]}, {products}"
        lines = [together] if len(together) <= _LINE else [*lines, products]
    if group.kept:
        lines.append(f"{units.byte_size(group.kept)} read backward")
    if group.again:
        lines.append(f"{group.again} of them computed again")
    return Node(
        key=_key(key),
        title=group.name if group.members == 1 else f"{group.name} scopes",
        lines=tuple(lines),
        role=role or _LANES[key[1]].role,
        lane=lane,
        row=row,
        strong=bool(group.again),
    )


def _key(key: Key) -> str:
    return f"s{key[1]}_{key[0]}"


def _drawn(edges: Sequence[tuple[Key, Key, int]], *, laned: bool) -> Iterator[Edge]:
    largest = max((size for _, _, size in edges), default=1)
    for place, (source, target, size) in enumerate(edges):
        share = math.log1p(size) / math.log1p(largest) if largest else 0.0
        yield Edge(
            _key(source),
            _key(target),
            role=_LANES[source[1]].role if laned else Role.OTHER,
            label=units.byte_size(size) if place < _LABELLED and not laned else "",
            width=round(0.6 + (_WIDEST - 0.6) * share**6, 2),
        )


def _without_names(work: Sequence[Instruction]) -> str:
    """Why the program is not folded by the names in its code."""
    scoped = sum(bool(user_scope(node.op_name)) for node in work)
    if scoped:
        noun = "instruction carries" if scoped == 1 else "instructions carry"
        why = f"Only {units.count(scoped)} {noun} a scope"
    elif any(node.op_name for node in work):
        why = "The op_names of the module hold no scope"
    else:
        why = "The module carries no op_name"
    return f"{why}, so that it is folded by opcode."


def _sentence(
    step: StepFlow,
    work: Sequence[Instruction],
    groups: Mapping[Key, _Group],
    merged: Mapping[Key, _Group],
    *,
    by_name: bool,
) -> str:
    total = step.flow.entry.module.num_instructions
    text = f"{units.count(len(work))} launched instructions of {units.count(total)} in the module"
    if not by_name:
        return f"{text}, by opcode: {plural(len(merged), 'group')}."
    names = {name for name, _ in groups}
    text += f", in {plural(len(names), 'scope')}"
    if len(merged) < len(groups):
        text += f", the smallest {len(names) - _MOST + 1} in one"
    return text + "."
