"""Which part of a recording is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hloscope.errors import UsageError
from hloscope.traces.intervals import Intervals
from hloscope.traces.steps import Step, Steps, steady_window

__all__ = ["Window", "WindowChoice", "Windows", "windows_of"]


@dataclass(frozen=True, slots=True)
class Window:
    """Part of a recording.

    Attributes:
        begin: Where it begins, in picoseconds from the recording's origin.
        end: Where it ends.
        name: What it is, in words.
    """

    begin: int
    end: int
    name: str

    @property
    def length(self) -> int:
        """How long it is."""
        return self.end - self.begin

    def holds(self, step: Step) -> bool:
        """Whether the middle of a step lies in it: edges of work on several lines overlap."""
        return self.begin <= (step.begin + step.end) // 2 < self.end

    def steps(self, steps: Steps) -> tuple[Step, ...]:
        """The steps in it."""
        return tuple(filter(self.holds, steps.rows))


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """What a user asked for.

    Attributes:
        name: ``auto`` (steady state where it is known, else all), ``all``, ``steady``
            or ``steps``.
        first: Number of the first step, where steps were asked for.
        last: Number of the last one.
    """

    name: str = "auto"
    first: int = 0
    last: int = 0

    @classmethod
    def parse(cls, text: str) -> WindowChoice:
        """``auto``, ``all``, ``steady``, ``7`` or ``3-9``.

        Raises:
            UsageError: It is none of these.
        """
        if text in ("auto", "all", "steady"):
            return cls(text)
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", text)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise UsageError(
                f"{text!r} is no window",
                place=f"--window {text}",
                hint="Choose auto, all, steady, the number of a step, or two: 3-9.",
            )
        return cls("steps", int(match[1]), int(match[2] or match[1]))


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one device.

    Attributes:
        whole: From the first thing that it did to the last.
        steady: The steps without what only starts them; ``None`` where that is not known,
            or is the whole.
        chosen: The one that everything is counted in.
        missing: Why the chosen one is not what was asked for, or empty.
    """

    whole: Window
    steady: Window | None
    chosen: Window
    missing: str = ""


def windows_of(steps: Steps, busy: Intervals, choice: WindowChoice) -> Windows:
    """The windows of a device.

    Args:
        steps: Of the device.
        busy: When it worked.
        choice: What was asked for.
    """
    whole = Window(*(busy.span or (0, 0)), "all")
    found = steady_window(steps, busy)
    steady = None
    if found is not None and found != (whole.begin, whole.end):
        steady = Window(*found, "steady state")
    chosen, missing = whole, ""
    if choice.name in ("auto", "steady"):
        chosen = steady or whole
        if choice.name == "steady" and found is None:
            missing = "no steady state is known with fewer than four steps: all is counted"
    elif choice.name == "steps":
        asked = [step for step in steps.rows if choice.first <= step.number <= choice.last]
        if asked:
            name = f"steps {choice.first}-{choice.last}"
            if choice.first == choice.last:
                name = f"step {choice.first}"
            chosen = Window(asked[0].begin, max(step.end for step in asked), name)
        else:
            known = (
                f"its steps are {steps.rows[0].number} to {steps.rows[-1].number}"
                if steps.rows
                else "it has no steps"
            )
            missing = f"no step {choice.first} to {choice.last} ({known}): all is counted"
    return Windows(whole, steady, chosen, missing)
