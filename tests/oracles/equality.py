"""What differs between two readings of one module, as a list of sentences.

Some things XLA does not keep from one form to another, so they are compared
by what they mean:

* Computations that wrap an asynchronous operation get new names, and so do
  their instructions, whenever text with ``fusion-start(...)`` is parsed. They
  are paired through the ``async-start`` that calls them, and their parameters
  by number; the text has one metadata for the start and for what it wraps.
* Computations stand in any order in which callees precede callers.
* XLA renumbers stack frames when it reads a protobuf, so what counts is each
  instruction's stack, not the number of its frame.
* Floating-point types narrower than 32 bits print four or five digits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator

import numpy as np

from hloscope.ir import Computation, Instruction, Module
from hloscope.ir.dtypes import BITS

__all__ = ["differences"]

Normal = Callable[[str, str], str | None]
"""Gives the form in which an attribute (key, text) is compared, or ``None`` to skip it."""


def differences(
    left: Module,
    right: Module,
    *,
    not_in_header: Collection[str] = (),
    normal: Normal = lambda _key, text: text,
    limit: int = 20,
) -> list[str]:
    """Compare every computation, instruction, shape, attribute, literal and stack.

    Args:
        left: One reading.
        right: Another reading of the same module.
        not_in_header: Header attributes that one of the formats does not carry.
        normal: How to compare the text of attributes other than metadata.
        limit: Stop after so many differences.
    """
    found: list[str] = []
    for text in _modules(left, right, not_in_header, normal):
        found.append(text)
        if len(found) == limit:
            break
    return found


def _modules(
    left: Module, right: Module, not_in_header: Collection[str], normal: Normal
) -> Iterator[str]:
    yield from _headers(left, right, not_in_header)
    pairs = _pairs(left, right)
    ours = {computation.name for computation, _ in pairs}
    theirs = {computation.name for _, computation in pairs}
    if only := sorted(({*left.computations} - ours) | ({*right.computations} - theirs)):
        yield f"computations differ: {only[:6]}"
    if left.entry.name != right.entry.name:
        yield f"entry: {left.entry.name} against {right.entry.name}"
    for computation, other in pairs:
        yield from _computations(computation, other, normal)


def _pairs(left: Module, right: Module) -> list[tuple[Computation, Computation]]:
    """Computations of one name, and those that async-starts of one name call.

    Two starts may share a computation in the one form and not in the other.
    """
    wrapped: dict[tuple[str, str], tuple[Computation, Computation]] = {}
    for name in left.computations.keys() & right.computations.keys():
        for instruction in left.computations[name].instructions:
            other = right.computations[name].get(instruction.name)
            if instruction.opcode == "async-start" and other is not None:
                for mine, yours in zip(instruction.called, other.called, strict=False):
                    wrapped[mine.name, yours.name] = (mine, yours)
    ours, theirs = {name for name, _ in wrapped}, {name for _, name in wrapped}
    same = (left.computations.keys() - ours) & (right.computations.keys() - theirs)
    named = [(left.computations[name], right.computations[name]) for name in sorted(same)]
    return [*named, *wrapped.values()]


def _headers(left: Module, right: Module, absent: Collection[str]) -> Iterator[str]:
    for field in (
        "name",
        "is_scheduled",
        "input_output_alias",
        "buffer_donors",
        "num_partitions",
        "replica_count",
        "entry_layout",
    ):
        ours, theirs = getattr(left.header, field), getattr(right.header, field)
        if ours != theirs and field not in absent:
            yield f"header {field}: {ours} against {theirs}"
    for key in sorted({*left.header.attributes, *right.header.attributes} - set(absent)):
        mine, other = left.header.attributes.get(key), right.header.attributes.get(key)
        if mine != other:
            yield f"header {key}={_short(mine)} against {_short(other)}"


def _labels(computation: Computation, by_name: bool) -> dict[Instruction, str]:
    """What stands for an instruction when two computations are compared."""
    if by_name:
        return {i: i.name for i in computation.instructions}
    others = [i for i in computation.instructions if i.opcode != "parameter"]
    return {p: f"parameter {p.payload}" for p in computation.parameters} | {
        i: f"operation {k}" for k, i in enumerate(others)
    }


def _computations(left: Computation, right: Computation, normal: Normal) -> Iterator[str]:
    where = f"%{left.name}"
    by_name = not any(caller.opcode == "async-start" for caller in left.callers)
    mine, yours = _labels(left, by_name), _labels(right, by_name)
    if list(mine.values()) != list(yours.values()):
        only = sorted({*mine.values()} ^ {*yours.values()})[:6]
        yield f"{where}: instructions differ: {only or 'in their order'}"
        return
    if mine[left.root] != yours[right.root]:
        yield f"{where}: root {left.root.name} against {right.root.name}"
    if left.execution_thread != right.execution_thread:
        yield f"{where}: thread {left.execution_thread} against {right.execution_thread}"
    for instruction, other in zip(mine, yours, strict=True):
        ours = [mine[operand] for operand in instruction.operands]
        theirs = [yours[operand] for operand in other.operands]
        if ours != theirs:
            yield f"{where} %{instruction.name}: operands {ours} against {theirs}"
        texts = [*_instructions(instruction, other, normal)]
        if by_name:
            texts += _origins(instruction, other)
        for text in texts:
            yield f"{where} %{instruction.name} ({instruction.opcode}): {text}"


def _instructions(left: Instruction, right: Instruction, normal: Normal) -> Iterator[str]:
    if left.opcode != right.opcode:
        yield f"opcode {left.opcode} against {right.opcode}"
    if left.shape != right.shape:
        yield f"shape {left.shape} against {right.shape}"
    if left.parameter_number != right.parameter_number:
        yield f"parameter {left.parameter_number} against {right.parameter_number}"
    wraps = left.opcode == "async-start"
    if not wraps and [c.name for c in left.called] != [c.name for c in right.called]:
        yield f"calls {left.called} against {right.called}"
    for key in sorted({*left.attributes, *right.attributes} - {"metadata"}):
        mine, other = (
            normal(key, text) if (text := i.attributes.get(key)) is not None else None
            for i in (left, right)
        )
        if mine != other and not (wraps and key == "calls"):
            yield f"{key}={_short(mine)} against {_short(other)}"
    if left.opcode == "constant":
        yield from _literals(left, right)


def _origins(left: Instruction, right: Instruction) -> Iterator[str]:
    ours, theirs = (dataclasses.replace(i.metadata, stack_frame_id=0) for i in (left, right))
    if ours != theirs:
        yield f"metadata {ours} against {theirs}"
    if left.stack != right.stack:
        yield f"stack {left.stack} against {right.stack}"


def _literals(left: Instruction, right: Instruction) -> Iterator[str]:
    """Values agree wherever both readings have them."""
    mine, other = left.literal, right.literal
    if mine is None or other is None or mine.elided or other.elided:
        return
    ours, theirs = mine.values(), other.values()
    if ours is None or theirs is None:
        if (ours is None) != (theirs is None):
            yield "only one reading has the value"
        return
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        yield f"value of {ours.dtype}{ours.shape} against {theirs.dtype}{theirs.shape}"
    elif ours.dtype.kind not in "fc":
        if not np.array_equal(ours, theirs):
            yield f"value {_short(str(ours))} against {_short(str(theirs))}"
    else:
        digits = 5e-4 if BITS[left.shape.dtype] < 32 else 0.0
        if not np.allclose(ours, theirs, rtol=digits, atol=0.0, equal_nan=True):
            yield f"value {_short(str(ours))} against {_short(str(theirs))}"


def _short(text: str | None) -> str:
    text = str(text)
    return text if len(text) < 160 else f"{text[:120]}...{text[-30:]}"
