"""Follows one array of the entry through the instructions that only hand it on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from hloscope.ir import Instruction, Module
from hloscope.passes.entry_slots import Index, Slot

__all__ = ["changing_convert", "chain_of", "result_chain", "slot_values"]

_HANDED_ON = frozenset(
    ("bitcast", "copy", "copy-done", "copy-start", "opt-barrier", "reshape", "transpose")
)
_ENTERED = frozenset(("fusion", "call"))
# Results of large programs depend on nearly everything; one leaf is not worth a walk of it all.
_MOST_VISITED = 4096


def chain_of(instruction: Instruction, index: Index = ()) -> Iterator[Instruction]:
    """The instructions that a value went through unchanged, the last one first.

    Fusions and calls are entered, tuples taken apart; the last one that is
    given made the value.

    Args:
        instruction: What holds the value.
        index: Where in the instruction's tuple; empty if it is no tuple.
    """
    entered: list[Instruction] = []
    while True:
        yield instruction
        opcode = instruction.opcode
        if opcode == "tuple" and index:
            instruction, index = instruction.operands[index[0]], index[1:]
        elif opcode == "get-tuple-element":
            index = (instruction.tuple_index or 0, *index)
            instruction = instruction.operands[0]
        elif opcode in _ENTERED and instruction.called:
            entered.append(instruction)
            instruction = instruction.called[0].root
        elif opcode == "parameter" and entered:
            instruction = entered.pop().operands[instruction.parameter_number or 0]
        elif opcode in _HANDED_ON and instruction.operands:
            if opcode == "copy-start":
                index = ()
            instruction = instruction.operands[0]
        else:
            return


def result_chain(module: Module, index: Index) -> Sequence[Instruction]:
    """The chain behind one of the entry's results."""
    return tuple(chain_of(module.entry.root, index))


def slot_values(slot: Slot) -> Sequence[Instruction]:
    """The instructions of the entry that are the array of a slot itself."""
    values = [slot.parameter]
    for position in slot.index:
        values = [
            user
            for value in values
            for user in value.users
            if user.opcode == "get-tuple-element" and user.tuple_index == position
        ]
    return values


def changing_convert(module: Module, slot: Slot, index: Index, dtype: str) -> Instruction | None:
    """The convert that makes a parameter's dtype into that of a result.

    That is the one that makes the result, where it converts from the
    parameter's dtype; else the first on the way from the parameter, through
    instructions that keep its shape and dtype, that the result depends on.

    Args:
        module: The module of both.
        slot: The parameter.
        index: The result.
        dtype: The result's dtype.
    """
    made_by = result_chain(module, index)[-1]
    own = slot.shape.dtype
    if made_by.opcode == "convert" and made_by.operands[0].shape.dtype == own:
        return made_by
    found = list(_converts_of(slot, dtype))
    if not found:
        return None
    needed = _needed_for(module, index)
    if needed is None:
        return None
    reached = [convert for convert, launched in found if launched in needed]
    # Converts that XLA put in for itself carry no line.
    return next((c for c in reached if c.location is not None), reached[0] if reached else None)


def _converts_of(slot: Slot, dtype: str) -> Iterator[tuple[Instruction, Instruction]]:
    """Converts of the parameter to ``dtype``, each with the entry's instruction around it."""
    own, sizes = slot.shape.dtype, slot.shape.num_elements
    work: deque[tuple[Instruction, Instruction | None]] = deque(
        (value, None) for value in slot_values(slot)
    )
    seen: set[tuple[Instruction, Instruction | None]] = set(work)
    while work and len(seen) < _MOST_VISITED:
        value, around = work.popleft()
        for user in value.users:
            launched = around or user
            if user.opcode == "convert" and user.shape.dtype == dtype:
                yield user, launched
                continue
            following = []
            if user.opcode in _ENTERED and user.called:
                parameters = user.called[0].parameters
                following = [
                    parameters[number]
                    for number, operand in enumerate(user.operands)
                    if operand is value and number < len(parameters)
                ]
            if user.shape.is_array and (user.shape.dtype, user.shape.num_elements) == (own, sizes):
                following.append(user)
            for each in following:
                state = (each, launched if each is not user else around)
                if state not in seen:
                    seen.add(state)
                    work.append(state)


def _needed_for(module: Module, index: Index) -> set[Instruction] | None:
    """What a result depends on in the entry; ``None`` where that is too much to look at."""
    start = module.entry.root
    if index and start.opcode == "tuple":
        start = start.operands[index[0]]
    needed = {start}
    work = [start]
    while work:
        for operand in work.pop().operands:
            if operand not in needed:
                needed.add(operand)
                work.append(operand)
        if len(needed) > _MOST_VISITED:
            return None
    return needed
