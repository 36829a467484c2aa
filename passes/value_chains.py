"""Follows one array of the entry through the instructions that only hand it on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from hloscope.ir import Computation, Instruction, Module
from hloscope.passes.entry_slots import Index, Slot

__all__ = [
    "changing_convert",
    "chain_of",
    "is_read",
    "out_of_order",
    "result_chain",
    "slot_values",
]

_HANDED_ON = frozenset(
    ("bitcast", "copy", "copy-done", "copy-start", "opt-barrier", "reshape", "transpose")
)
_ENTERED = frozenset(("fusion", "call"))
# A module before optimization marks shardings and memories by calls that change nothing.
_MARKS = frozenset(
    (
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "annotate_device_placement",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
    )
)
# One leaf is not worth a walk of a whole program.
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
        elif _is_handed_on(instruction):
            if opcode == "copy-start":
                index = ()
            instruction = instruction.operands[0]
        else:
            return


def _is_handed_on(instruction: Instruction) -> bool:
    if not instruction.operands:
        return False
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("custom_call_target", "").strip('"') in _MARKS
    return instruction.opcode in _HANDED_ON


# What reads its operand in another order than it writes, or more than once.
_OUT_OF_ORDER = frozenset(
    (
        "concatenate",
        "convolution",
        "custom-call",
        "dot",
        "fft",
        "gather",
        "pad",
        "reduce",
        "reduce-window",
        "reverse",
        "scatter",
        "sort",
        "transpose",
    )
)


def out_of_order(reader: Instruction, value: Instruction) -> str:
    """What in an instruction (or inside its fusion) cannot work where the value lies.

    A product or a transpose reads elements after it has written others; what
    works element by element does not.

    Returns:
        The opcode, or nothing where there is none.
    """
    if reader.opcode != "fusion" or not reader.called:
        return reader.opcode if reader.opcode in _OUT_OF_ORDER else ""
    parameters = reader.called[0].parameters
    work = [parameters[n] for n, o in enumerate(reader.operands) if o is value]
    seen = set(work)
    while work and len(seen) < _MOST_VISITED:
        for user in work.pop().users:
            if user.opcode in _OUT_OF_ORDER:
                return user.opcode
            if user not in seen:
                seen.add(user)
                work.append(user)
    return ""


def is_read(slot: Slot) -> bool:
    """Whether any instruction takes the array of a slot."""
    return any(value.users or value.is_root for value in slot_values(slot))


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
    instructions that keep its shape and dtype, that the result is computed from
    element by element.

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
    needed = _elementwise_sources(module, index, slot.shape.num_elements)
    reached = [convert for convert in found if convert in needed]
    # Converts that XLA put in for itself carry no line.
    return next((c for c in reached if c.location is not None), reached[0] if reached else None)


def _converts_of(slot: Slot, dtype: str) -> Iterator[Instruction]:
    """Converts of the parameter to ``dtype``, behind what keeps its size and dtype."""
    own, sizes = slot.shape.dtype, slot.shape.num_elements
    work = deque(slot_values(slot))
    seen = set(work)
    while work and len(seen) < _MOST_VISITED:
        value = work.popleft()
        for user in value.users:
            if user.opcode == "convert" and user.shape.dtype == dtype:
                yield user
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
                if each not in seen:
                    seen.add(each)
                    work.append(each)


def _elementwise_sources(module: Module, index: Index, size: int) -> set[Instruction]:
    """What a result is made of through instructions of as many elements, in any computation."""
    calls: dict[Computation, Instruction] = {}
    start = (module.entry.root, index)
    work = deque([start])
    seen = {start}
    while work and len(seen) < _MOST_VISITED:
        instruction, position = work.popleft()
        following: list[tuple[Instruction, Index]] = []
        opcode = instruction.opcode
        if opcode == "tuple" and position:
            following = [(instruction.operands[position[0]], position[1:])]
        elif opcode == "get-tuple-element":
            following = [(instruction.operands[0], (instruction.tuple_index or 0, *position))]
        elif opcode in _ENTERED and instruction.called:
            callee = instruction.called[0]
            calls[callee] = instruction
            following = [(callee.root, position)]
        elif opcode == "parameter" and instruction.computation in calls:
            call = calls[instruction.computation]
            following = [(call.operands[instruction.parameter_number or 0], position)]
        else:
            following = [
                (operand, ())
                for operand in instruction.operands
                if operand.shape.is_array and operand.shape.num_elements == size
            ]
        for each in following:
            if each not in seen:
                seen.add(each)
                work.append(each)
    return {instruction for instruction, _ in seen}
