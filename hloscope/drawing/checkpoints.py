"""One layer of a training step: what it computes, keeps, computes again and reads backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from hloscope.drawing.contents import Weight, rebuilt_inside, weight_of
from hloscope.drawing.flow import Flow, Value
from hloscope.drawing.step_flow import StepFlow, user_scope
from hloscope.errors import Unavailable
from hloscope.ir import Computation, Instruction
from hloscope.passes.buffer_kinds import named_origin
from hloscope.passes.step_parts import StepPart

__all__ = ["Layer", "Place", "find_layer", "reads_of"]

_CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer is, in terms that hold for the same step compiled another way.

    Attributes:
        scope: The user's scope around it; empty where there is none.
        looped: Whether it stands in the body of a loop.
    """

    scope: str
    looped: bool


@dataclass(frozen=True, slots=True)
class Layer:
    """One region that is checkpointed, or would be.

    Attributes:
        place: Where it is.
        name: How a caption calls it.
        alike: Regions of the step, this one included; 0 where nothing is checkpointed.
        forward: Its forward instructions, in the order of the schedule.
        kept: Forward instructions whose results the backward pass reads.
        values: The arrays of those that cross.
        fetched: What takes one layer's part out of the arrays that a loop stacked.
        recomputed: Forward work that is run again.
        rebuilding: Backward fusions that run such work inside, and what of it.
        backward: What reads what was kept or recomputed.
        arguments: Parameters of the program that both passes read, which are kept anyway.
    """

    place: Place
    name: str
    alike: int
    forward: Sequence[Instruction]
    kept: Sequence[Instruction]
    values: Sequence[Value]
    fetched: Sequence[Instruction]
    recomputed: Sequence[Instruction]
    rebuilding: Mapping[Instruction, str]
    backward: Sequence[Instruction]
    arguments: Sequence[Instruction]


def find_layer(step: StepFlow, like: Place | None = None) -> Layer:
    """The checkpointed region that shows most, or the layer at the place of another's.

    Args:
        step: The step.
        like: Where the layer of the same step is that was compiled with
            rematerialization; ``None`` to choose one.

    Raises:
        Unavailable: The module has no backward pass.
    """
    if not any(True for _ in step.of(StepPart.BACKWARD)):
        raise Unavailable(
            "the module has no backward pass: no op_name in it says transpose(...)",
            hint="Draw a training step, or --view scope.",
        )
    regions = _regions(step)
    if not regions or like is not None:
        place = like or _busiest(step)
        again = [
            node
            for place_, nodes in regions
            for node in nodes
            if place_.scope == place.scope and place_.looped == place.looped
        ]
        return _layer(step, place, again, 0)
    best = max(regions, key=lambda region: _interest(step, region[1]))
    return _layer(step, best[0], best[1], len(regions))


def _busiest(step: StepFlow) -> Place:
    """Where to look in a step without checkpoints: its loop, else its outermost scope with most."""
    if any(
        not step.home(node).is_entry and weight_of(node) is Weight.PRODUCTS
        for node in step.of(StepPart.BACKWARD)
    ):
        return Place("", looped=True)
    weights: Counter[str] = Counter()
    for node in step.of(StepPart.FORWARD):
        weight = weight_of(node)
        scope = user_scope(named_origin(node).op_name).partition("/")[0]
        weights[scope] += weight if weight >= Weight.FUNCTIONS else 0
    return Place(max(weights, key=lambda scope: (weights[scope], scope), default=""), looped=False)


def _regions(step: StepFlow) -> list[tuple[Place, list[Instruction]]]:
    """What is run again, one list for each checkpoint that a name or the flow tells apart."""
    groups: dict[tuple[Computation, str], list[Instruction]] = {}
    for node in step.order:
        part = step.parts[node]
        if part is StepPart.REPLAYED or (part is StepPart.BACKWARD and rebuilt_inside(node)):
            groups.setdefault((step.home(node), _checkpoint_scope(node)), []).append(node)
    found: list[tuple[Place, list[Instruction]]] = []
    for (computation, scope), nodes in groups.items():
        place = Place(scope, looped=not computation.is_entry)
        if scope or place.looped:
            found.append((place, nodes))
            continue
        # Without a scope only the flow tells one layer from the next.
        replayed = [n for n in nodes if step.parts[n] is StepPart.REPLAYED] or nodes
        graph = step.flow.graph.subgraph(replayed)
        pieces = [step.sorted(piece) for piece in nx.weakly_connected_components(graph)]
        pieces.sort(key=lambda piece: step.order[piece[0]])
        found += [(place, piece) for piece in pieces]
    # Where whole instructions are run again, what fusions do inside is no region of its own.
    whole = [
        (place, nodes)
        for place, nodes in found
        if any(step.parts[node] is StepPart.REPLAYED for node in nodes)
        and any(weight_of(node) > Weight.ELEMENTWISE for node in nodes)
    ]
    return whole or found


def _checkpoint_scope(node: Instruction) -> str:
    """The user's scope around the checkpoint that an instruction is run again for."""
    first = node.op_name.partition(";")[0]
    path = first.split("/")
    if _CHECKPOINT in path:
        first = "/".join([*path[: path.index(_CHECKPOINT)], "-"])
    return user_scope(first)


def _interest(step: StepFlow, nodes: Sequence[Instruction]) -> tuple[bool, int, int]:
    kept = any(_is_kept(step, made) for node in nodes for made in step.flow.makers(node))
    weight = sum(int(weight_of(node)) for node in nodes)
    return kept, weight, -step.order[nodes[0]]


def _is_kept(step: StepFlow, maker: Instruction) -> bool:
    """Whether an array that the backward pass reads was made in the forward pass."""
    if maker.opcode == "parameter" or maker in step.flow.carried:
        return False
    part = step.parts[maker]
    if part is StepPart.OTHER:  # XLA's own, or zeros and the like, which nothing waits for
        return _computes(step, maker)
    return part is StepPart.FORWARD


def _computes(step: StepFlow, maker: Instruction) -> bool:
    """Whether it computes something, or moves what something in the same part computed."""
    seen = {maker}
    work = [maker]
    while work:
        here = work.pop()
        if weight_of(here) > Weight.MOVES:
            return True
        for further in step.flow.makers(here):
            if further not in seen and step.parts[further] is StepPart.OTHER:
                seen.add(further)
                work.append(further)
    return False


def _layer(step: StepFlow, place: Place, again: Sequence[Instruction], alike: int) -> Layer:
    flow = step.flow
    recomputed = [n for n in again if step.parts[n] is StepPart.REPLAYED]
    around = {step.home(n) for n in again}
    candidates = [
        node
        for node in step.of(StepPart.BACKWARD)
        if node not in flow.carried and _belongs(step, node, place, around)
    ]
    fetched = _fetched(step, recomputed or candidates, candidates)
    readers = {*recomputed, *fetched}
    if not recomputed or place.scope or place.looped:
        readers |= set(candidates)
    else:
        readers |= {n for r in recomputed for n in flow.readers(r) if n in set(candidates)}
    kept: dict[Instruction, None] = {}
    values: dict[Value, None] = {}
    arguments: dict[Instruction, None] = {}
    for reader in step.sorted(readers):
        for maker in flow.makers(reader):
            if _is_kept(step, maker):
                kept[maker] = None
                values |= dict.fromkeys((maker, index) for index in flow.arrays(maker, reader))
            elif maker.opcode == "parameter" and reader not in fetched:
                arguments[maker] = None
    sources = {*kept, *recomputed, *fetched}
    rebuilding = {n: told for n in candidates if (told := rebuilt_inside(n))}
    backward = [
        node
        for node in candidates
        if node not in fetched
        and (node in rebuilding or not sources.isdisjoint(reads_of(flow, node, sources)))
    ]
    forward = _forward(step, place, list(kept), recomputed)
    both = [a for a in arguments if any(r in forward for r in flow.readers(a))]
    return Layer(
        place=place,
        name=place.scope or ("the body of a loop" if place.looped else ""),
        alike=alike,
        forward=step.sorted(forward),
        kept=step.sorted(kept),
        values=tuple(values),
        fetched=step.sorted(fetched),
        recomputed=recomputed,
        rebuilding=rebuilding,
        backward=backward,
        arguments=step.sorted(both),
    )


def reads_of(flow: Flow, node: Instruction, ends: Container[Instruction]) -> set[Instruction]:
    """What makes the arrays that a node reads, past what only moves them and is no end."""
    found: set[Instruction] = set()
    work = list(flow.makers(node))
    while work:
        maker = work.pop()
        if maker not in found:
            found.add(maker)
            if maker not in ends and weight_of(maker) is Weight.MOVES:
                work += flow.makers(maker)
    return found


def _belongs(step: StepFlow, node: Instruction, place: Place, around: set[Computation]) -> bool:
    home = step.home(node)
    if place.looped == home.is_entry or (around and home not in around):
        return False
    return place.looped or _in_scope(node, place.scope)


def _in_scope(node: Instruction, scope: str) -> bool:
    if not scope:
        return True
    own = user_scope(named_origin(node).op_name)
    return own == scope or own.startswith(scope + "/")


def _fetched(
    step: StepFlow, readers: Sequence[Instruction], candidates: Sequence[Instruction]
) -> set[Instruction]:
    """Backward instructions that only take a part of what was kept, for others to read."""
    movers = {
        node
        for node in candidates
        if not step.home(node).is_entry
        and weight_of(node) is Weight.MOVES
        and any(_is_kept(step, maker) for maker in step.flow.makers(node))
    }
    wanted = set(readers) | set(candidates)
    return {mover for mover in movers if any(r in wanted for r in step.flow.readers(mover))}


def _forward(
    step: StepFlow, place: Place, kept: Sequence[Instruction], recomputed: Sequence[Instruction]
) -> set[Instruction]:
    """The layer's forward instructions, what is kept of them included."""
    forward = list(step.of(StepPart.FORWARD))
    if place.looped:
        bodies = {step.home(k) for k in kept} - {step.flow.entry}
        inside = [n for n in forward if n not in step.flow.carried]
        bodies = bodies or {step.home(n) for n in inside} - {step.flow.entry}
        return {n for n in inside if step.home(n) in bodies}
    if place.scope or not recomputed:
        return {n for n in forward if _in_scope(n, place.scope)}
    # Without a scope: what depends on what this layer keeps, up to what the next one keeps.
    border = {
        maker
        for node in step.of(StepPart.REPLAYED)
        for maker in step.flow.makers(node)
        if _is_kept(step, maker)
    }
    found = set(kept)
    work = list(kept)
    if not work:
        shared = [m for node in recomputed for m in step.flow.makers(node)]
        work = [r for m in shared for r in step.flow.readers(m) if r in set(forward)]
        found |= set(work)
    while work:
        for reader in step.flow.readers(work.pop()):
            if reader not in found and step.parts[reader] is StepPart.FORWARD:
                found.add(reader)
                if reader not in border:
                    work.append(reader)
    return found
