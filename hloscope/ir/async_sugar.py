"""``slice-start`` and its kind: shorthand for ``async-start`` of a computation with one root.

Text names the wrapped operation in the opcode and leaves its computation out.
XLA itself builds that computation when it reads the text, and so do we: then
every pass sees one form, whichever way a module was printed.
"""

from __future__ import annotations

from hloscope.ir.module import Computation, Instruction, Module

__all__ = ["expand_async_sugar", "is_async_sugar"]

_OWN_OPCODES = frozenset(
    f"{base}-{step}"
    for base in ("all-gather", "all-reduce", "async", "collective-permute", "copy")
    for step in ("start", "update", "done")
) | {"send-done", "recv-done"}

_START_ONLY = ("async_execution_thread", "control-predecessors", "sharding")
"""Attributes that belong to the start itself."""

_SHARED = ("backend_config", "frontend_attributes", "metadata")
"""Attributes that text prints once for the start and for the root that it wraps."""


def is_async_sugar(opcode: str) -> bool:
    """Whether an opcode stands for ``async-start``, ``-update`` or ``-done``."""
    return opcode.endswith(("-start", "-update", "-done")) and opcode not in _OWN_OPCODES


def expand_async_sugar(module: Module) -> None:
    """Replace every shorthand in place and add the computations that it wraps."""
    expanded: dict[str, Computation] = {}
    wrapped_so_far = 0
    for computation in module.computations.values():
        for instruction in computation.instructions:
            if not is_async_sugar(instruction.opcode):
                continue
            base, _, step = instruction.opcode.rpartition("-")
            if step == "start":
                wrapped = _wrap(instruction, base, module, wrapped_so_far)
                wrapped_so_far += 1
                expanded[wrapped.name] = wrapped
            instruction.opcode = f"async-{step}"
        expanded[computation.name] = computation
    module.computations = expanded


def _wrap(start: Instruction, opcode: str, module: Module, count: int) -> Computation:
    name = "async_wrapped" if count == 0 else f"async_wrapped.{count}"
    while name in module.computations:
        name += ".clone"
    computation = Computation(name, module)
    thread = start.attributes.get("async_execution_thread")
    if thread is not None:
        computation.execution_thread = thread.strip('"')
    attributes = dict(start.attributes)
    parameters = [
        Instruction(
            f"{name}.param.{number}",
            "parameter",
            operand.shape,
            (),
            computation,
            number,
            start.line,
            str(number),
            {},
        )
        for number, operand in enumerate(start.operands)
    ]
    # The start's shape is ((operands...), result, contexts...).
    members = start.shape.elements
    shape = members[1] if len(members) > 1 else start.shape
    root = Instruction(
        f"{name}.{opcode}",
        opcode,
        shape,
        tuple(parameters),
        computation,
        len(parameters),
        start.line,
        "",
        {k: v for k, v in attributes.items() if k not in _START_ONLY},
    )
    instructions = [*parameters, root]
    computation.fill(instructions, {i.name: i for i in instructions}, root)
    start.replace_attributes(
        {"calls": f"%{name}"}
        | {k: v for k, v in attributes.items() if k in _START_ONLY or k in _SHARED}
    )
    return computation
