"""What computed the values that a buffer keeps, and which loop stacked them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.passes.buffer_kinds import Phase, named_origin, phase_of, place_in
from hloscope.passes.buffers import Buffer, BufferTable
from hloscope.passes.trip_counts import TripCounts
from hloscope.pipeline.findings import Basis

__all__ = ["Made", "argument_of", "chain_of", "made_by"]

_SAME = frozenset(
    """
    bitcast convert copy copy-done copy-start opt-barrier reduce-precision reshape transpose
    """.split()  # noqa: SIM905
)
_PARTS = _SAME | {"dynamic-slice", "slice"}
_ENTERED = frozenset(("async-start", "call", "fusion"))
_ENDS = frozenset(("async-done", "async-update"))
_JOINED = "ConcatBitcast"
_MOST_STEPS = 200


@dataclass(frozen=True, slots=True)
class Made:
    """How the values of a buffer came to be.

    Attributes:
        chain: The instructions that the values went through unchanged but for
            their dtype, from where they are written inwards; the last one
            computed them.
        layers: How many iterations of a loop each wrote their part of the
            buffer; ``None`` where no loop did, or it is not certain.
        argument: The parameter of the entry that the values are a copy, a cast
            or a part of, if they are.
    """

    chain: tuple[Instruction, ...]
    layers: int | None
    argument: Instruction | None

    @property
    def maker(self) -> Instruction:
        """What computed the values, or the nearest to it that has an op_name."""
        return next((i for i in reversed(self.chain) if i.op_name), self.chain[-1])


def made_by(buffer: Buffer, table: BufferTable | None, trips: TripCounts) -> Made:
    """Follow what the forward pass wrote to a buffer last.

    Args:
        buffer: A buffer with what wrote it.
        table: The buffers of its computation, where they are at hand.
        trips: How often loops run.
    """
    for writer in reversed(buffer.writers):
        if phase_of(named_origin(writer).op_name) is Phase.BACKWARD:
            continue
        if writer.opcode != "while":
            return _written(buffer, writer, trips)
        place = _carried_at(buffer, writer, table)
        body = writer.callee("body")
        left = _left(body, place) if body is not None and place is not None else None
        if left is None:
            continue  # the loop hands it on as it is
        chain = tuple(_chain(left, None, _SAME))
        return Made(chain, _layers(chain, buffer, trips), argument_of(left))
    return _written(buffer, buffer.instruction, trips)


def argument_of(instruction: Instruction, place: int | None = None) -> Instruction | None:
    """The entry parameter that an array is a copy, a cast or a part of, if it is."""
    *_, last = _chain(instruction, place, _PARTS)
    is_argument = last.opcode == "parameter" and last.computation.is_entry
    return last if is_argument else None


def chain_of(instruction: Instruction) -> tuple[Instruction, ...]:
    """What a value went through unchanged but for its dtype; the last one computed it."""
    return tuple(_chain(instruction, None, _SAME))


def _written(buffer: Buffer, writer: Instruction, trips: TripCounts) -> Made:
    place = place_in(buffer, writer)
    chain = tuple(_chain(writer, place, _SAME))
    return Made(chain, _layers(chain, buffer, trips), argument_of(writer, place))


def _carried_at(buffer: Buffer, loop: Instruction, table: BufferTable | None) -> int | None:
    """Where in a loop's tuple the buffer is carried."""
    values = table.values.get(loop) if table is not None else None
    if values is not None:
        found = (n for n, value in enumerate(values) if value.resolve() is buffer)
        return next(found, None)
    carried = loop.operands[0] if loop.operands else None
    if carried is None or carried.opcode != "tuple":
        return None
    wanted = buffer.instruction, place_in(buffer, buffer.instruction)
    for number, operand in enumerate(carried.operands):
        here: tuple[Instruction, int | None] = operand, None
        if operand.opcode == "get-tuple-element" and operand.operands:
            here = operand.operands[0], operand.tuple_index
        if here == wanted:
            return number
    return None


def _left(body: Computation, place: int) -> Instruction | None:
    """What one iteration leaves at a place of the tuple; ``None`` if it is what it found."""
    root = body.root
    if root.opcode != "tuple" or place >= len(root.operands):
        return None
    value = root.operands[place]
    here = value
    while here.opcode in ("bitcast", "copy") and here.operands:
        here = here.operands[0]
    if here.opcode == "get-tuple-element" and here.operands[0].opcode == "parameter":
        return None if here.tuple_index == place else value
    return value


def _layers(chain: tuple[Instruction, ...], buffer: Buffer, trips: TripCounts) -> int | None:
    """Iterations that each wrote one slice along the first dimension."""
    update = next((i for i in chain if i.opcode == "dynamic-update-slice"), None)
    loop = _loop_around(update.computation) if update is not None else None
    trip = trips.get(loop) if loop is not None else None
    if update is None or trip is None or trip.basis is not Basis.EXACT or len(update.operands) < 2:
        return None
    whole, part = update.shape.dimensions, update.operands[1].shape.dimensions
    stacked = whole[:1] == (trip.count,) and part[:1] == (1,) and part[1:] == whole[1:]
    return trip.count if stacked and whole == buffer.shape.dimensions else None


def _loop_around(computation: Computation) -> Instruction | None:
    """The loop whose body a computation is, or is run by once."""
    for _ in range(_MOST_STEPS):
        callers = [caller for caller in computation.callers if caller.opcode not in _ENDS]
        if len(callers) != 1:
            return None
        if callers[0].opcode not in _ENTERED:
            return callers[0] if callers[0].opcode == "while" else None
        computation = callers[0].computation
    return None


def _chain(
    instruction: Instruction, place: int | None, through: frozenset[str]
) -> Iterator[Instruction]:
    """The instructions that a value went through, the last one written first."""
    entered: list[Instruction] = []
    around: set[Instruction] = set()
    for _ in range(_MOST_STEPS):
        yield instruction
        opcode, operands = instruction.opcode, instruction.operands
        if opcode == "get-tuple-element" and operands:
            source, index = operands[0], instruction.tuple_index or 0
            if source.opcode == "parameter" and not entered:
                following = _carried(instruction, source.computation, index, around)
                if following is None:
                    return
                instruction = following
            elif source.opcode == "while":
                following = _left_by(source, index)
                if following is None:
                    return
                instruction = following
            else:
                instruction, place = source, index
        elif opcode in _ENDS and operands:
            instruction = operands[0]
        elif opcode == "tuple" and place is not None and place < len(operands):
            instruction, place = operands[place], None
        elif opcode in _ENTERED and instruction.called:
            entered.append(instruction)
            instruction = instruction.called[0].root
        elif opcode == "parameter" and entered:
            number = instruction.parameter_number or 0
            caller = entered.pop()
            if number >= len(caller.operands):
                return
            instruction = caller.operands[number]
        elif opcode == "dynamic-update-slice" and len(operands) > 1 and not around:
            # One iteration's part of a stack; in it no other is looked for.
            around.add(instruction)
            instruction = operands[1]
        elif operands and (opcode in through or (_is_joined(instruction) and "slice" in through)):
            instruction, place = operands[0], None
        else:
            return


def _is_joined(instruction: Instruction) -> bool:
    """Whether it joins the parts of one array that a TPU fetches one by one."""
    return instruction.opcode == "custom-call" and instruction.custom_call_target == _JOINED


def _carried(
    element: Instruction, body: Computation, index: int, around: set[Instruction]
) -> Instruction | None:
    """What a loop's body finds in its tuple: an iteration left it, or the loop was given it."""
    loop = next((caller for caller in body.callers if caller.opcode == "while"), None)
    if loop is None or element in around:
        return None
    around.add(element)
    left = _left(body, index)
    return left if left is not None else _given(loop, index)


def _left_by(loop: Instruction, index: int) -> Instruction | None:
    """What a loop leaves at a place of its tuple: its last iteration, or whoever began it."""
    body = loop.callee("body")
    left = _left(body, index) if body is not None else None
    return left if left is not None else _given(loop, index)


def _given(loop: Instruction, index: int) -> Instruction | None:
    given = loop.operands[0] if loop.operands else None
    if given is None or given.opcode != "tuple" or index >= len(given.operands):
        return None
    return given.operands[index]
