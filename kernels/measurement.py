"""What a benchmark found of each case, as plain data. Imports no JAX."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hloscope.kernels.case import Case
from hloscope.kernels.errors import ResultError

__all__ = ["Measured", "Outcome", "Times"]


class Outcome(StrEnum):
    """What became of a case."""

    MEASURED = "measured"
    INTERPRETED = "interpreted"  # numbers checked; its time would be the interpreter's
    UNSUPPORTED = "unsupported"
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of single calls, warm and interleaved with the other implementations'.

    Attributes:
        seconds: One a round; where a call is short, the mean of several in a row.
    """

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """What a quarter of the rounds lies below, and above."""
        if len(self.seconds) < 2:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high


@dataclass(frozen=True, slots=True)
class Measured:
    """One implementation on one shape in one direction.

    Attributes:
        case: What was run.
        outcome: What became of it.
        reason: Why it was not measured; empty otherwise.
        errors: Of every result, against the oracle.
        times: Of the calls; ``None`` where it was not timed.
        memory: XLA's memory analysis of the executable.
        hlo: The optimized module as text.
    """

    case: Case
    outcome: Outcome
    reason: str = ""
    errors: tuple[ResultError, ...] = ()
    times: Times | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    hlo: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether a result is further from the oracle than its dtype explains."""
        return any(error.is_wrong for error in self.errors)

    @property
    def counts(self) -> bool:
        """Whether its time may be compared: timed, checked and not wrong."""
        return self.times is not None and bool(self.errors) and not self.is_wrong

    def with_event(self, event: Mapping[str, Any]) -> Measured:
        """The same with what the measuring process said of it."""
        kind = event["event"]
        if kind == "compiled":
            return dataclasses.replace(self, memory=event["memory"], hlo=event["hlo"])
        if kind == "checked":
            errors = tuple(
                ResultError(
                    **{
                        **row,
                        "largest": float(row["largest"]),
                        "norm": float(row["norm"]),
                    }
                )
                for row in event["errors"]
            )
            outcome = Outcome(event["outcome"])
            return dataclasses.replace(self, outcome=outcome, reason="", errors=errors)
        if kind == "timed":
            return dataclasses.replace(self, times=Times(tuple(event["seconds"])))
        return dataclasses.replace(self, outcome=Outcome(event["outcome"]), reason=event["reason"])
