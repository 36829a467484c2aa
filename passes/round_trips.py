"""Values that are converted to another type and straight back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.ir.dtypes import BITS, is_floating, is_integer
from hloscope.passes.converts import Convert, Converts
from hloscope.passes.origins import Origins
from hloscope.pipeline.analyses import analysis

__all__ = ["RoundTrip", "RoundTrips", "find_round_trips"]


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Two conversions with nothing but movement between them.

    Attributes:
        there: The first conversion, out of the type.
        back: The second, into the same type again.
        bytes: What one run moves through memory beyond what it would without both.
        shared: Whether something else needs the value in between.
        exchanged: Whether devices exchange it in between: a narrow type then
            saves bytes on the wire, and a wide one is its exchange's matter.
    """

    there: Convert
    back: Convert
    bytes: int
    shared: bool
    exchanged: bool

    @property
    def loses(self) -> bool:
        """Whether the value is rounded on the way, so that dropping both changes results."""
        return BITS[self.there.result] < BITS[self.there.source]

    @property
    def asked_for(self) -> bool:
        """Whether the program wrote both."""
        return self.there.asked_for and self.back.asked_for

    @property
    def nominal_bytes(self) -> int:
        """Bytes per execution, each unknown loop run once."""
        return self.bytes * self.back.times.nominal


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """The round trips of a program, by their second conversion."""

    rows: Sequence[RoundTrip]


@analysis
def find_round_trips(converts: Converts, origins: Origins) -> RoundTrips:
    """Find conversions whose operand comes, moved only, from the opposite conversion.

    What one costs, of ``n`` elements of ``a`` bytes that become ``b`` bytes:
    nothing where both stand in a launch that does something else as well, and
    ``2 a n`` in one that only reads, rounds and writes. Else a first conversion that is a
    launch of its own reads ``a n`` and writes ``b n``, for nothing; one at the
    end of another launch writes ``b n`` where ``a n`` would do. The second
    counts the same way. Where something else needs the value in between the
    first would be there anyhow.
    """
    rows = []
    for back in converts.rows:
        origin = origins.of(back.instruction.operands[0])
        there = converts.by_instruction.get(origin)
        if there is None or there.source != back.result or there.result != back.source:
            continue
        if _is_number(there.source) and _is_number(there.result):
            shared = _is_shared(there.instruction, back)
            exchanged = origins.exchanged(back.instruction.operands[0])
            cost = _cost(there, back, shared=shared)
            rows.append(RoundTrip(there, back, cost, shared, exchanged))
    return RoundTrips(rows)


def _is_number(dtype: str) -> bool:
    return is_floating(dtype) or is_integer(dtype)


def _cost(there: Convert, back: Convert, *, shared: bool) -> int:
    if there.launch is back.launch:
        return there.read + back.written if there.alone and there.read and back.written else 0
    outer = there.instruction.operands[0].shape.bytes
    inner = there.instruction.shape.bytes
    first = outer + inner if there.alone else inner - outer
    outer = back.instruction.shape.bytes
    inner = back.instruction.operands[0].shape.bytes
    second = outer + inner if back.alone else inner - outer
    if there.times.nominal != back.times.nominal:
        first = 0  # it runs outside of the loop that holds the second
    return max(0, second + (0 if shared else first))


def _is_shared(there: Instruction, back: Convert) -> bool:
    """Whether a value is used in its own computation by more than the way to ``back``.

    Where it leaves a fusion the fusion's users count.
    """
    users = list(there.users)
    if there.is_root and there.computation is not back.instruction.computation:
        users += [user for caller in there.computation.callers for user in caller.users]
    return len(users) > 1
