"""Where the program itself asks for a sharding: its sharding constraints and what they hold for.

Compiled code keeps no constraint. The module before optimization has each as a
call of ``Sharding``, and XLA's partitioner names what it inserts after the
operation that gives or takes the value, so that names and sizes join the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hloscope.ir import Instruction
from hloscope.passes.operand_reuse import ELEMENTWISE
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import LoweredModule

__all__ = ["RequestedShardings", "elements_of_shard", "find_requested_shardings"]

_MOST_VISITED = 500
_ALIKE = ELEMENTWISE | {"bitcast-convert", "call", "copy", "optimization-barrier", "opt-barrier"}
_TILES = re.compile(r"\{devices=\[([\d,]+)\](.*)\}", re.DOTALL)
_OPEN = re.compile(r"\{[^{}]*\?\}")


@dataclass(frozen=True, slots=True)
class RequestedShardings:
    """Which operations make, take or work element by element on a constrained value.

    Attributes:
        sizes: For each op_name the elements that one device is to hold of such a
            value; ``None`` among them where a constraint leaves a dimension open.
    """

    sizes: Mapping[str, frozenset[int | None]]

    def asks_for(self, op_name: str, elements: int) -> bool:
        """Whether a constraint next to an operation asks for that many elements on a device.

        Args:
            op_name: What the compiler calls the exchange, or what it sends; joined names
                count alike.
            elements: What a device holds after it, or before.
        """
        for name in op_name.split(";"):
            wanted = self.sizes.get(name, frozenset())
            if elements in wanted or None in wanted:
                return True
        return False


@analysis
def find_requested_shardings(lowered: LoweredModule) -> RequestedShardings:
    """Follow each constraint to the operations around it; linear in what they reach.

    A constraint holds for what its operand is made of element by element, as for
    what is made of its result: the partitioner moves it along.
    """
    sizes: dict[str, set[int | None]] = {}
    for computation in lowered.module.computations.values():
        for instruction in computation.instructions:
            if instruction.opcode != "custom-call" or instruction.custom_call_target != "Sharding":
                continue
            wanted = _wanted(instruction)
            for other in _alike(instruction):
                for name in other.op_name.split(";"):
                    if name:
                        sizes.setdefault(name, set()).add(wanted)
    return RequestedShardings({name: frozenset(found) for name, found in sizes.items()})


def _wanted(constraint: Instruction) -> int | None:
    if _OPEN.search(constraint.attributes.get("frontend_attributes", "")):
        return None
    return elements_of_shard(constraint.sharding or "", constraint.shape.dimensions)


def elements_of_shard(sharding: str, dimensions: tuple[int, ...]) -> int | None:
    """Elements that one device holds of an array, padding included.

    Args:
        sharding: As HLO prints it.
        dimensions: Of the whole array.

    Returns:
        ``None`` for a sharding that gives devices nothing alike.
    """
    if sharding == "{replicated}":
        return prod(dimensions)
    tiles = _TILES.fullmatch(sharding)
    if tiles is None:
        return None
    counts = [int(count) for count in tiles[1].split(",")]
    if len(counts) < len(dimensions):
        return None
    return prod(-(-size // count) for size, count in zip(dimensions, counts, strict=False))


def _alike(constraint: Instruction) -> Iterator[Instruction]:
    """The constraint, what makes its operand, and what is element by element on either side."""
    dimensions = constraint.shape.dimensions
    yield constraint
    pending, seen = [constraint], {constraint}
    while pending and len(seen) < _MOST_VISITED:
        value = pending.pop()
        makers = value.operands if value is constraint or value.opcode in _ALIKE else ()
        users = [user for user in value.users if user.opcode in _ALIKE]
        for other in (*makers, *users):
            if other in seen or other.shape.is_tuple or other.shape.dimensions != dimensions:
                continue
            seen.add(other)
            if other.opcode == "custom-call" and other.custom_call_target == "Sharding":
                continue  # the next constraint speaks for itself
            yield other
            for called in other.called if other.opcode == "call" else ():
                yield from (i for i in called.instructions if i.shape.dimensions == dimensions)
            pending.append(other)
