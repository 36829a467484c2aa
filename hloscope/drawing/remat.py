"""The ``remat`` view: what a layer keeps for its backward pass, and what it computes again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from hloscope.drawing.checkpoints import Layer, find_layer, reads_of
from hloscope.drawing.contents import Weight, array_text, contents, is_counter, weight_of
from hloscope.drawing.crossing import Crossing
from hloscope.drawing.figures import products_text
from hloscope.drawing.flow import shape_at
from hloscope.drawing.grid import place_rows
from hloscope.drawing.picture import Edge, EdgeKind, Lane, Node, Panel, Picture, Role
from hloscope.drawing.step_flow import StepFlow, user_scope
from hloscope.ir import Instruction
from hloscope.passes.execution import Execution
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.flops.totals import NOTHING
from hloscope.passes.residuals import Residuals
from hloscope.passes.step_parts import is_replay
from hloscope.pipeline.audit import plural
from hloscope.pipeline.session import Session

__all__ = ["Side", "draw_remat"]

_FORWARD, _KEPT, _RECOMPUTED, _BACKWARD = range(4)
_LANES = (
    Lane("forward", Role.FORWARD),
    Lane("kept for backward", Role.KEPT),
    Lane("computed again", Role.RECOMPUTED),
    Lane("backward, reading these", Role.BACKWARD),
)
_TINY = 64  # what is so many times smaller than the largest kept array is not drawn
_MOST = (9, 9, 10, 10)  # nodes of each lane; 38 a side can be read on one page


@dataclass(frozen=True, slots=True)
class Side:
    """One program of the picture.

    Attributes:
        title: Stands above its panel.
        session: Gives its analyses.
    """

    title: str
    session: Session


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One side's layer, and which of it is drawn in which lane."""

    side: Side
    step: StepFlow
    layer: Layer
    lanes: tuple[tuple[Instruction, ...], ...]
    graph: nx.DiGraph[Instruction]

    @classmethod
    def of(cls, side: Side, like: Layer | None) -> _Drawn:
        step = side.session.get(StepFlow)
        layer = find_layer(step, like.place if like is not None else None)
        flow = step.flow
        kept = set(layer.kept)
        crossing = {m for n in layer.backward for m in flow.makers(n)}
        rest = [node for node in layer.forward if node not in kept and not is_counter(node)]
        held = [*_worth_keeping(step, layer), *layer.fetched]
        again = layer.recomputed
        if not kept:
            held = [*layer.arguments, *held]
        lanes = [
            tuple(_chosen(step, nodes, most, crossing))
            for nodes, most in zip((rest, held, again), _MOST[:_BACKWARD], strict=True)
        ]
        lanes.append(tuple(_readers(step, layer, {*lanes[_KEPT], *lanes[_RECOMPUTED]})))
        graph = _drawn_graph(step, layer, lanes)
        alone = {
            node
            for node, degree in graph.degree
            if not degree and weight_of(node) < Weight.FUNCTIONS
        }
        graph.remove_nodes_from(alone)
        lanes = [tuple(node for node in lane if node not in alone) for lane in lanes]
        return cls(side, step, layer, tuple(lanes), graph)

    @property
    def drawn(self) -> int:
        return sum(map(len, self.lanes))

    @property
    def left_out(self) -> int:
        layer = self.layer
        whole = {*layer.forward, *layer.kept, *layer.fetched, *layer.recomputed, *layer.backward}
        return len(whole - {node for lane in self.lanes for node in lane})


def draw_remat(side: Side, beside: Side | None = None) -> Picture:
    """Draw one layer: forward, what crosses, what is computed again, what reads it.

    Args:
        side: The step to look at.
        beside: The same step compiled without rematerialization; its panel
            shows the layer at the same place.

    Raises:
        Unavailable: A module has no backward pass.
    """
    first = _Drawn.of(side, None)
    sides = [first]
    if beside is not None:
        sides.append(_Drawn.of(beside, first.layer))
    caption = [_region(first)]
    panels = []
    twins = _twins(first, sides[1]) if beside is not None else {}
    for number, drawn in enumerate(sides):
        strong = twins.keys() if number == 0 else twins.values()
        panels.append(_panel(drawn, number, set(strong)))
        caption.append(_counts(drawn))
    caption += _contrast(twins)
    caption += _undone(first)
    caption.append(
        "Dashed: by way of instructions that are not drawn. Layouts, casts and copies are left out."
    )
    name = first.layer.name
    return Picture(
        title=f"rematerialization of {name}" if name else "rematerialization",
        panels=tuple(panels),
        caption=tuple(caption),
        drawn=sum(drawn.drawn for drawn in sides),
        left_out=sum(drawn.left_out for drawn in sides),
        counted="instructions of the layer",
    )


def _worth_keeping(step: StepFlow, layer: Layer) -> list[Instruction]:
    """What is kept, without what is next to nothing and the casts of arguments."""
    sizes: dict[Instruction, int] = {}
    for maker, index in layer.values:
        sizes[maker] = sizes.get(maker, 0) + shape_at(maker.shape, index).bytes
    least = max(sizes.values(), default=0) // _TINY
    return [
        node
        for node in layer.kept
        if (sizes[node] > least and not _is_argument(step, node)) or weight_of(node) > Weight.STEPS
    ]


def _is_argument(step: StepFlow, node: Instruction) -> bool:
    """Whether it is an argument of the step in another type or layout: a weight, mostly."""
    makers = list(step.flow.makers(node))
    return (
        weight_of(node) is Weight.MOVES
        and bool(makers)
        and all(maker.opcode == "parameter" for maker in makers)
    )


def _chosen(
    step: StepFlow,
    nodes: Sequence[Instruction],
    most: int,
    crossing: set[Instruction],
) -> list[Instruction]:
    """The nodes of a lane that show most, in the order of the schedule."""

    def interest(node: Instruction) -> tuple[int, bool, int, int]:
        made_of_nothing = not any(True for _ in step.flow.makers(node))  # positions, masks
        weight = Weight.MOVES if made_of_nothing else weight_of(node)
        return int(weight), node in crossing, node.shape.bytes, -step.order[node]

    return step.sorted(sorted(nodes, key=interest, reverse=True)[:most])


def _readers(step: StepFlow, layer: Layer, shown: set[Instruction]) -> list[Instruction]:
    """Of the backward lane, what reads the most telling of what is shown."""
    flow = step.flow
    left = {
        node
        for node in layer.backward
        if node in layer.rebuilding
        or (weight_of(node) > Weight.MOVES and not shown.isdisjoint(reads_of(flow, node, shown)))
    }
    unread = set(shown)

    def interest(node: Instruction) -> tuple[int, int, int, int]:
        makers = reads_of(flow, node, shown)
        news = sum(int(weight_of(maker)) for maker in makers & unread)
        weight = max(int(weight_of(node)), int(node in layer.rebuilding) * Weight.FUNCTIONS)
        return news, len(makers & shown), weight, -step.order[node]

    chosen: list[Instruction] = []
    while left and len(chosen) < _MOST[_BACKWARD]:
        best = max(left, key=interest)
        chosen.append(best)
        left.discard(best)
        unread -= reads_of(flow, best, shown)
    return step.sorted(chosen)


def _panel(drawn: _Drawn, number: int, strong: set[Instruction]) -> Panel:
    lane_of = {node: lane for lane, nodes in enumerate(drawn.lanes) for node in nodes}
    graph = drawn.graph
    rows = place_rows(drawn.lanes, list(graph.edges), upward=_BACKWARD)
    nodes = tuple(
        Node(
            key=f"p{number}n{drawn.step.order[node]}",
            title=f"%{node.name}",
            lines=_lines(drawn, node),
            role=_LANES[lane].role,
            lane=lane,
            row=rows[node],
            tooltip=f"%{node.name} = {node.shape.without_layout()} {node.opcode}: {node.op_name}",
            strong=node in strong,
        )
        for lane, members in enumerate(drawn.lanes)
        for node in members
    )
    edges = tuple(
        Edge(
            f"p{number}n{drawn.step.order[source]}",
            f"p{number}n{drawn.step.order[target]}",
            kind,
            role=_LANES[lane_of[source]].role,
            width=1.8 if source in strong and lane_of[target] == _BACKWARD else 1.0,
        )
        for source, target, kind in _kinds(graph)
    )
    lanes = list(_LANES)
    if not drawn.layer.recomputed:
        lanes[_RECOMPUTED] = replace(lanes[_RECOMPUTED], title="nothing computed again")
    return Panel(drawn.side.title, nodes, edges, tuple(lanes))


def _lines(drawn: _Drawn, node: Instruction) -> tuple[str, ...]:
    told = contents(node)
    again = drawn.layer.rebuilding.get(node)
    crossing = [index for made, index in drawn.layer.values if made is node]
    shape = node.shape
    if len(crossing) == 1:
        shape = shape_at(shape, crossing[0])
    lines = [array_text(shape), told]
    if again:
        lines.append(f"again: {again}")
    return tuple(lines)


def _drawn_graph(
    step: StepFlow, layer: Layer, lanes: Sequence[Sequence[Instruction]]
) -> nx.DiGraph[Instruction]:
    """Edges among what is drawn: direct ones, and dashed ones past what is left out.

    What is left out belongs to the target's part of the step, so that no edge
    hides that something else crosses; or it only moves what it reads. To the
    backward lane only reads that nothing else stands between are drawn: all
    else is the step's long way round.
    """
    flow = step.flow
    lane_of = {node: lane for lane, nodes in enumerate(lanes) for node in nodes}
    graph: nx.DiGraph[Instruction] = nx.DiGraph()
    for node in step.sorted(lane_of):
        graph.add_node(node)
    kept = set(layer.kept)
    for node in step.sorted(lane_of):
        seen: set[Instruction] = set()
        work = [(maker, EdgeKind.DIRECT) for maker in flow.makers(node)]
        while work:
            maker, kind = work.pop()
            if maker in lane_of:
                if not graph.has_edge(maker, node) or kind is EdgeKind.DIRECT:
                    graph.add_edge(maker, node, kind=kind)
                continue
            moves = weight_of(maker) is Weight.MOVES
            if maker in seen or maker in kept:
                continue
            if step.parts[maker] is not step.parts[node] and not moves:
                continue
            seen.add(maker)
            work += [(further, EdgeKind.THROUGH) for further in flow.makers(maker)]
    past = [(source, target) for source, target, kind in _kinds(graph) if kind is EdgeKind.THROUGH]
    for source, target in past:
        if lane_of[target] == _BACKWARD:
            long_way = source not in reads_of(flow, target, lane_of)
        else:
            long_way = lane_of[source] == _FORWARD and lane_of[target] == _RECOMPUTED
        if long_way:
            graph.remove_edge(source, target)
    for source, target, kind in _kinds(graph):
        if kind is EdgeKind.THROUGH:
            graph.remove_edge(source, target)
            if not nx.has_path(graph, source, target):
                graph.add_edge(source, target, kind=kind)
    return graph


def _kinds(
    graph: nx.DiGraph[Instruction],
) -> list[tuple[Instruction, Instruction, EdgeKind]]:
    return [(source, target, data["kind"]) for source, target, data in graph.edges(data=True)]


def _twins(remat: _Drawn, plain: _Drawn) -> dict[Instruction, Instruction]:
    """What is computed again, by what is kept without: the same operation on the same shape."""
    kept: dict[tuple[str, str, str], Instruction] = {}
    for node in plain.lanes[_KEPT]:
        if node in plain.layer.kept:
            kept.setdefault(_identity(node), node)
    found = {}
    for node in remat.lanes[_RECOMPUTED]:
        twin = kept.get(_identity(node))
        if twin is not None and weight_of(node) >= Weight.FUNCTIONS:
            found[node] = twin
    return found


def _identity(node: Instruction) -> tuple[str, str, str]:
    return user_scope(node.op_name), contents(node), array_text(node.shape)


def _region(drawn: _Drawn) -> str:
    layer = drawn.layer
    if not layer.alike:
        text = "No instruction of the module is marked as computed again (rematted_computation)"
        return f"{text}; drawn is {layer.name}." if layer.name else f"{text}."
    if layer.place.looped:
        return (
            f"The layer in the loops' bodies{_named(layer)}: a residual is stacked over all layers "
            "by the forward loop, and the backward loop takes its part of it."
        )
    if layer.alike == 1:
        return f"The one checkpointed region of the step{_named(layer)}."
    return f"One of {layer.alike} checkpointed regions of the step{_named(layer)}."


def _named(layer: Layer) -> str:
    return f" ({layer.place.scope})" if layer.place.scope else ""


def _counts(drawn: _Drawn) -> str:
    layer = drawn.layer
    crossing = Crossing.of(layer, drawn.step, drawn.side.session.find(Residuals))
    text = f"{drawn.side.title}: {crossing.said()}"
    if layer.recomputed or layer.rebuilding:
        text += f"; computed again: {plural(len(layer.recomputed), 'instruction')}"
        text += _again(drawn)
        if layer.rebuilding:
            text += f", and inside {plural(len(layer.rebuilding), 'backward fusion')}"
    else:
        text += "; nothing computed again"
    left = list(_left_out(drawn))
    return text + (f". Not drawn: {', '.join(left)}." if left else ".")


def _again(drawn: _Drawn) -> str:
    execution = drawn.side.session.get(Execution)
    members = {*drawn.layer.recomputed}
    total = NOTHING
    for row in drawn.side.session.get(FlopLedger).rows:
        if execution.launch_of(row.instruction) in members:
            total += row.total
    products = products_text(total)
    return f" with {products} of products" if products else ""


def _left_out(drawn: _Drawn) -> Iterator[str]:
    layer = drawn.layer
    forward = len(set(layer.forward) - set(layer.kept)) - len(drawn.lanes[_FORWARD])
    held = len({*layer.kept, *layer.fetched} - set(drawn.lanes[_KEPT]))
    again = len(layer.recomputed) - len(drawn.lanes[_RECOMPUTED])
    backward = len(layer.backward) - len(drawn.lanes[_BACKWARD])
    for count, what in (
        (forward, "forward"),
        (held, "kept"),
        (again, "computed again"),
        (backward, "backward"),
    ):
        if count:
            yield f"{count} {what}"


def _contrast(twins: Mapping[Instruction, Instruction]) -> Iterator[str]:
    """The pair that says most, in words."""
    if not twins:
        return
    again, kept = max(twins.items(), key=lambda pair: _telling(pair[0]))
    yield (
        f"Without, %{kept.name} ({contents(kept)}) feeds the backward pass directly; with "
        f"rematerialization it is gone by then, and %{again.name} builds it again. Such pairs have "
        "a bold frame."
    )


def _undone(drawn: _Drawn) -> Iterator[str]:
    undone = [node for node in drawn.step.merged if is_replay(node)]
    if undone:
        yield (
            f"{plural(len(undone), 'instruction')} of the module with the name of a repetition "
            "are read by the forward pass itself: XLA merged them with the first computation, and "
            "nothing is computed again there."
        )


def _telling(node: Instruction) -> tuple[bool, int]:
    return weight_of(node) is Weight.FUNCTIONS, node.shape.bytes
