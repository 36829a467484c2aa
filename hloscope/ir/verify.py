"""Checks that a foreign module hangs together before any pass walks it.

The parsers make sure of names, operands and parameter numbers. What is left
is what would make a pass crash or run forever: calls into nowhere, recursion,
attributes that cannot be read, tuple indexes out of range.
"""

from __future__ import annotations

from hloscope.errors import InputError
from hloscope.ir.module import Computation, Instruction, Module

__all__ = ["verify"]

_NEEDS: dict[str, tuple[str, ...]] = {
    "fusion": ("calls",),
    "call": ("to_apply",),
    "while": ("condition", "body"),
    "map": ("to_apply",),
    "reduce": ("to_apply",),
}


def verify(module: Module) -> None:
    """Raise unless every pass can rely on the module's structure.

    Raises:
        ParseError: An instruction is malformed; it names its line.
        InputError: The module is malformed as a whole.
    """
    for instruction in module.instructions():
        _check_instruction(instruction)
    _check_acyclic(module)
    _check_aliases(module)


def _check_instruction(instruction: Instruction) -> None:
    names = instruction.called_names()
    for key in _NEEDS.get(instruction.opcode, ()):
        if key not in names:
            raise instruction.error(f"has no {key}=")
    _ = instruction.called
    if instruction.opcode == "get-tuple-element":
        _check_tuple_index(instruction)
    elif instruction.opcode == "while" and len(instruction.operands) != 1:
        raise instruction.error("a while takes one operand, the tuple that it carries")
    elif instruction.opcode == "fusion":
        _check_fusion(instruction)


def _check_tuple_index(instruction: Instruction) -> None:
    if len(instruction.operands) != 1:
        raise instruction.error("takes one operand")
    index = instruction.tuple_index
    shape = instruction.operands[0].shape
    if shape.is_tuple and (index is None or not 0 <= index < len(shape.elements)):
        raise instruction.error(f"index {index} is outside {shape}")


def _check_fusion(instruction: Instruction) -> None:
    for callee in instruction.called:
        if len(callee.parameters) != len(instruction.operands):
            raise instruction.error(
                f"has {len(instruction.operands)} operands, "
                f"but {callee.name!r} takes {len(callee.parameters)} parameters"
            )


def _check_acyclic(module: Module) -> None:
    """HLO has no recursion: a cycle of calls would never end."""
    done: set[Computation] = set()
    for start in module.computations.values():
        path: dict[Computation, None] = {}
        stack: list[tuple[Computation, bool]] = [(start, False)]
        while stack:
            computation, leaving = stack.pop()
            if leaving:
                path.pop(computation, None)
                done.add(computation)
                continue
            if computation in done:
                continue
            if computation in path:
                raise InputError(
                    f"computation {computation.name!r} calls itself",
                    place=module.file,
                    hint="HLO has no recursion; dump the module again.",
                )
            path[computation] = None
            stack.append((computation, True))
            stack += [(callee, False) for i in computation.instructions for callee in i.called]


def _check_aliases(module: Module) -> None:
    parameters = len(module.entry.parameters)
    for alias in module.input_output_alias:
        if alias.parameter >= parameters:
            raise InputError(
                f"input_output_alias names parameter {alias.parameter}, "
                f"but the entry computation has {parameters}",
                place=module.file,
                hint="Check whether the file was cut or edited; dump the module again.",
            )
