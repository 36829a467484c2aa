"""How often programs and their instructions ran, from the kernels of a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hloscope.passes.multiplicity import Times
from hloscope.traces.kernel_instructions import Link
from hloscope.traces.operations import OperationTally

__all__ = ["Runs", "executions_of", "runs_of"]


_FEWEST_STEPS = 2  # of one, every number is a multiple


@dataclass(frozen=True, slots=True)
class Runs:
    """Executions of something.

    Attributes:
        number: How many; ``None`` where the trace does not tell.
        exact: Whether the recording tells them apart; otherwise they are inferred from
            how often kernels ran.
    """

    number: int | None
    exact: bool


def runs_of(
    rows: Iterable[tuple[OperationTally, Times]], recorded: int | None, steps: int = 0
) -> Runs:
    """Executions of a program on one device.

    Where the recording does not tell executions apart, an instruction that runs so many
    times in each tells how many there were; what most of them say holds. It is certain
    where the host annotated as many steps, or the program ran several times in each.

    Args:
        rows: Its instructions that ran, with how often each runs in one execution.
        recorded: Executions that the recording tells apart, if it does.
        steps: Steps that the host annotated.
    """
    if recorded is not None:
        return Runs(recorded, exact=True)
    votes: Counter[int] = Counter()
    for row, times in rows:
        each = times.exact
        if each and row.executions % each == 0:
            votes[row.executions // each] += 1
    if not votes:
        return Runs(None, exact=False)
    most = max(votes.values())
    number = min(number for number, count in votes.items() if count == most)
    return Runs(number, exact=steps >= _FEWEST_STEPS and number % steps == 0)


def executions_of(row: OperationTally, times: Times | None, runs: Runs) -> Runs:
    """Executions of an instruction on one device.

    They are the program's times how often the instruction runs in each, where both are
    known and its kernels ran a multiple of that. Otherwise its kernels tell: their
    greatest common number, which is right as long as one of them runs once an execution.

    Args:
        row: What ran of it.
        times: How often it runs in one execution of the program.
        runs: Executions of the program.
    """
    each = times.exact if times is not None else None
    if each and runs.number:
        expected = runs.number * each
        if row.executions % expected == 0:
            return Runs(expected, exact=runs.exact and row.link is Link.SAID)
    return Runs(row.executions, exact=False)
