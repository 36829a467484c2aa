"""Whether a trace ran the program that is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.ir import Module
from hloscope.pipeline.analyses import analysis
from hloscope.traces.summary import Trace
from hloscope.traces.tallies import UNKNOWN, Tally

__all__ = ["TracedMatch", "match_trace"]

_MOST = 0.5
_NOTHING = Tally(0, 0)


@dataclass(frozen=True, slots=True)
class TracedMatch:
    """How a trace and a program go together, as shares (0..1) of the trace's time.

    Attributes:
        name_share: Spent in a module of the program's name.
        instruction_share: Spent in instructions of names that the program has.
        longest: The module that most of the time was spent in; empty where none is named.
    """

    name_share: float
    instruction_share: float
    longest: str

    @property
    def is_the_same(self) -> bool:
        """Whether names and instructions are those of the program for the most part."""
        return self.name_share > _MOST and self.instruction_share > _MOST

    def mismatch(self, module: Module) -> str:
        """In words why figures of the trace may not be those of the program; empty if they are."""
        if self.is_the_same:
            return ""
        if self.name_share <= _MOST:
            spent = f"it spent most of its time in {self.longest}" if self.longest else ""
            return f"the trace is of another program than {module.name}: {spent}".rstrip(": ")
        return (
            f"the trace ran a {module.name} of other instructions: compiled for another chip, of "
            "other code, or by another version"
        )


@analysis
def match_trace(trace: Trace, module: Module) -> TracedMatch:
    """Hold a trace's modules and instructions against those of the program."""
    total = named = known = 0
    by_module: dict[str, int] = {}
    for device in trace.devices:
        total += device.time
        for word, tally in device.tallies["module"].items():
            if word != UNKNOWN:
                by_module[word] = by_module.get(word, 0) + tally.time
        named += device.tallies["module"].get(module.name, _NOTHING).time
        known += sum(
            tally.time for word, tally in device.tallies["op"].items() if word in module.by_name
        )
    total = max(total, 1)
    longest = max(by_module, key=lambda word: by_module[word], default="")
    return TracedMatch(named / total, known / total, longest)
