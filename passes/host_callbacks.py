"""Where a compiled step calls back to the host: Python callbacks, prints, infeeds and outfeeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir import Instruction, Module
from hloscope.passes.multiplicity import Multiplicity, Times
from hloscope.pipeline.analyses import analysis

__all__ = ["HostCallback", "HostCallbacks", "find_host_callbacks"]

# A CPU's and a GPU's are custom calls; older ones lack the ffi. A TPU's send and receive.
_TARGET = re.compile(r"xla_(ffi_)?(partitioned_)?python_\w*callback")
_TRANSFERS = ("send", "send-done", "recv", "recv-done")
_FEEDS = ("infeed", "outfeed")


@dataclass(frozen=True, slots=True)
class HostCallback:
    """One call to the host.

    Attributes:
        instructions: The custom call, or what sends to the host and receives from it.
        what: ``debug_print``, ``pure_callback``, ``infeed``...
        times: How often it runs in one step.
    """

    instructions: tuple[Instruction, ...]
    what: str
    times: Times


@dataclass(frozen=True, slots=True)
class HostCallbacks:
    """The calls to the host of a module, in its order."""

    rows: Sequence[HostCallback]


@analysis
def find_host_callbacks(module: Module, multiplicity: Multiplicity) -> HostCallbacks:
    """Find the calls to the host; what sends for one callback and receives is one."""
    calls: dict[object, list[Instruction]] = {}
    for instruction in module.instructions():
        if instruction.opcode in _TRANSFERS:
            if instruction.attributes.get("is_host_transfer") != "true":
                continue
            named = instruction.computation, instruction.op_name, instruction.location
            key: object = named if instruction.op_name else instruction
        elif instruction.opcode in _FEEDS or _TARGET.fullmatch(
            instruction.custom_call_target or ""
        ):
            key = instruction
        else:
            continue
        calls.setdefault(key, []).append(instruction)
    return HostCallbacks(
        tuple(
            HostCallback(tuple(found), _what(found[0]), multiplicity[found[0].computation])
            for found in calls.values()
        )
    )


def _what(instruction: Instruction) -> str:
    if instruction.opcode in _FEEDS:
        return instruction.opcode
    return instruction.op_name.rpartition("/")[2] or "callback"
