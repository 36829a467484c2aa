"""The ``around`` view: one instruction, what it reads, and what reads it, to the letter."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from hloscope.drawing.contents import array_text, contents
from hloscope.drawing.picture import Edge, EdgeKind, Node, Panel, Picture, Role
from hloscope.drawing.view import HOPS
from hloscope.errors import UsageError
from hloscope.ir import Computation, Instruction, Module
from hloscope.passes.buffer_kinds import named_origin
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.step_parts import StepPart, part_of
from hloscope.pipeline.audit import plural
from hloscope.pipeline.session import Session

__all__ = ["draw_around"]

_MOST = 60  # boxes that fit a page
_FAN = 8  # operands or users of one instruction that are followed
_INSIDE = 14  # instructions of a fusion's body that are drawn with it
_ROLES = {
    StepPart.FORWARD: Role.FORWARD,
    StepPart.REPLAYED: Role.RECOMPUTED,
    StepPart.BACKWARD: Role.BACKWARD,
    StepPart.OTHER: Role.OTHER,
}
_MEANING = {
    Role.FOCUS: "the instruction",
    Role.FORWARD: "forward",
    Role.RECOMPUTED: "computed again",
    Role.BACKWARD: "backward",
    Role.OTHER: "outside both",
}
_FREE = frozenset(("bitcast", "get-tuple-element"))  # names for what they read: no hop
_QUIET = frozenset(("broadcast", "constant", "iota"))
_HANDS_ON = frozenset(("domain", "opt-barrier", "while"))  # the elements of their operand


def draw_around(session: Session, title: str, name: str, *, hops: int = HOPS) -> Picture:
    """Draw the neighbourhood of an instruction.

    Elements of tuples and bitcasts are drawn and cost no hop. Where a
    computation begins or ends, the neighbourhood goes on in its caller; of a
    fusion the body is drawn with it, in a frame.

    Args:
        session: Gives the module and its calls.
        title: Stands above the picture.
        name: Of the instruction, with or without ``%``.
        hops: How far to go, in instructions.

    Raises:
        UsageError: The module has no instruction of that name.
    """
    graph = session.get(CallGraph)
    focus, others = _find(session.get(Module), graph, name)
    found = _Neighbourhood(graph, focus, hops)
    found.grow()
    inside = found.open_focus()
    nodes = tuple(_node(found, each, focus) for each in found.steps)
    roles = {node.role for node in nodes}
    place = "the entry" if focus.computation.is_entry else f"%{focus.computation.name}"
    text = f"%{focus.name}, {contents(focus)}, in {place}, and what is within {plural(hops, 'hop')}"
    caption = [f"{text}: {plural(len(nodes), 'instruction')} drawn."]
    if found.cut:
        caption.append(f"{plural(found.cut, 'more neighbour')} not drawn.")
    if inside:
        caption.append(f"{plural(inside, 'more instruction')} inside %{focus.name} not drawn.")
    if others:
        caption.append(
            f"In {plural(others, 'other computation')} there is an instruction of that name, too."
        )
    caption.append("Dotted: into or out of a called computation.")
    return Picture(
        title=f"around %{focus.name}",
        panels=(Panel(title, nodes, tuple(_edges(found))),),
        caption=tuple(caption),
        legend=tuple((role, _MEANING[role]) for role in _MEANING if role in roles),
        drawn=len(nodes),
        left_out=found.cut + inside,
        counted="neighbours",
    )


def _find(module: Module, graph: CallGraph, name: str) -> tuple[Instruction, int]:
    """The instruction, the outermost of that name, and how many computations more have one."""
    wanted = name.removeprefix("%")
    reached = [c for c in reversed(graph.order) if wanted in c]
    if not reached:
        reached = [c for c in module.computations.values() if wanted in c]
    if reached:
        return reached[0][wanted], len(reached) - 1
    names = dict.fromkeys(i.name for c in reversed(graph.order) for i in c.instructions)
    near = difflib.get_close_matches(wanted, names, n=5, cutoff=0.5)
    raise UsageError(
        f"the module has no instruction %{wanted}",
        place=f"--around {name}",
        hint=f"Near it: {', '.join(near)}." if near else "Take a name from the module's text.",
    )


@dataclass(slots=True)
class _Neighbourhood:
    """What is found so far, in the order in which it was found."""

    graph: CallGraph
    focus: Instruction
    hops: int
    steps: dict[Instruction, int] = field(default_factory=dict)
    cut: int = 0

    def grow(self) -> None:
        """Up to what it depends on, down to what depends on it; never up and down again."""
        self.steps[self.focus] = 0
        unseen: set[Instruction] = set()
        for ways in (_upward, _downward):
            # Of a tuple only the element on the way is followed.
            queue: deque[tuple[Instruction, int | None, int]] = deque(((self.focus, None, 0),))
            met: set[tuple[Instruction, int | None]] = set()
            while queue:
                here, element, cost = queue.popleft()
                near = [
                    (each, inner, cost + (each.opcode not in _FREE))
                    for each, inner in ways(self.graph, here, element)
                    if (each, inner) not in met
                ]
                near = [each for each in near if each[2] <= self.hops]
                fan = _MOST // 3 if here is self.focus else _FAN
                for each, inner, steps in near[:fan]:
                    met.add((each, inner))
                    if len(self.steps) >= _MOST and each not in self.steps:
                        unseen.add(each)
                        continue
                    self.steps.setdefault(each, steps)
                    queue.append((each, inner, steps))
                unseen |= {each for each, _, _ in near[fan:]}
        self.cut = len(unseen - set(self.steps))

    def open_focus(self) -> int:
        """Add the body of a fusion that is in the middle; gives how many did not fit."""
        if self.focus.opcode != "fusion":
            return 0
        body = [each for c in self.focus.called for each in c.instructions]
        # A parameter is drawn where what goes in is, the rest from the result up.
        ends = {each for each in body if each.opcode == "parameter"}
        work = [each for each in body if each not in ends and each.opcode not in _QUIET]
        ends = {
            each for each in ends if any(s in self.steps for s, _ in _sources(self.graph, each))
        }
        chosen = set(work[-_INSIDE:]) | ends
        shown = [each for each in body if each in chosen]
        for each in shown:
            self.steps.setdefault(each, 1)
        return len(body) - len(shown)


def _upward(
    graph: CallGraph, here: Instruction, element: int | None
) -> Iterator[tuple[Instruction, int | None]]:
    """What an instruction reads, or of a tuple what its element is."""
    if here.opcode == "tuple" and element is not None:
        if element < len(here.operands):
            yield here.operands[element], None
        return
    if here.opcode == "get-tuple-element":
        for operand in here.operands[:1]:
            yield operand, here.tuple_index
        return
    handed_on = element if here.opcode in _HANDS_ON or here.opcode == "parameter" else None
    for each, _ in _sources(graph, here):
        yield each, handed_on


def _downward(
    graph: CallGraph, here: Instruction, element: int | None
) -> Iterator[tuple[Instruction, int | None]]:
    """What reads an instruction, or of a tuple its element."""
    for user, _ in _targets(graph, here):
        if user.opcode == "get-tuple-element":
            if element is None or user.tuple_index == element:
                yield user, None
        elif user.opcode == "tuple" and here in user.operands:
            yield user, user.operands.index(here)
        else:
            yield user, element if user.opcode in _HANDS_ON else None


def _sources(graph: CallGraph, here: Instruction) -> Iterator[tuple[Instruction, EdgeKind]]:
    """What an instruction reads; of a parameter, what its callers hand in."""
    for operand in dict.fromkeys(here.operands):
        yield operand, EdgeKind.DIRECT
    if here.opcode == "parameter" and not here.computation.is_entry:
        number = here.parameter_number or 0
        for call in graph.callers.get(here.computation, ()):
            operands = call.caller.operands
            if call.caller.opcode == "conditional":
                operands = operands[call.position + 1 : call.position + 2]
            if number < len(operands):
                yield operands[number], EdgeKind.BOUNDARY


def _targets(graph: CallGraph, here: Instruction) -> Iterator[tuple[Instruction, EdgeKind]]:
    """What reads an instruction; of a root, what calls its computation."""
    for user in here.users:
        yield user, EdgeKind.DIRECT
    if here.is_root and not here.computation.is_entry:
        for call in graph.callers.get(here.computation, ()):
            yield call.caller, EdgeKind.BOUNDARY


def _edges(found: _Neighbourhood) -> Iterator[Edge]:
    opened = {each for each in found.steps if each.computation in found.focus.called}
    entered = {source for each in opened for source, _ in _sources(found.graph, each)}
    for here in found.steps:
        for source, kind in _sources(found.graph, here):
            if here is found.focus and source in entered:
                continue  # it goes in at a parameter of the body
            if source in found.steps:
                yield Edge(_key(source), _key(here), kind)
        for target, kind in _targets(found.graph, here):
            if kind is EdgeKind.BOUNDARY and target in found.steps:
                yield Edge(_key(here), _key(target), kind)


def _key(instruction: Instruction) -> str:
    return f"{instruction.computation.name} {instruction.index}"


def _node(found: _Neighbourhood, each: Instruction, focus: Instruction) -> Node:
    role = Role.FOCUS if each is focus else _ROLES[part_of(named_origin(each))]
    told = contents(each)
    if each.opcode == "parameter":
        told = each.op_name or f"parameter {each.parameter_number}"
    elif each.opcode == "get-tuple-element":
        told = f"element {each.tuple_index}"
    return Node(
        key=_key(each),
        title=f"%{each.name}",
        lines=(array_text(each.shape), told),
        role=role,
        tooltip=f"%{each.name} = {each.shape.without_layout()} {each.opcode}: {each.op_name}",
        strong=each is focus,
        group="" if each.computation is focus.computation else _frame(found, each.computation),
    )


def _frame(found: _Neighbourhood, computation: Computation) -> str:
    if computation.is_entry:
        return "the entry"
    callers = found.graph.callers.get(computation, ())
    if not callers:
        return f"%{computation.name}"
    caller = callers[0].caller
    return f"inside %{caller.name} ({callers[0].attribute} %{computation.name})"
