"""Says on stderr which phase runs and for how long."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from hloscope import units

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

__all__ = ["PhaseProgress"]

_WORTH_A_LINE = 1.0  # seconds


class PhaseProgress:
    """Called when a phase starts and when it ends.

    On a terminal a line counts the seconds of the phase that runs; a phase that
    took over a second leaves a plain line behind, on a terminal or off it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._running: dict[str, float] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, phase: str, seconds: float | None, note: str | None = None) -> None:
        """Take news of a phase.

        Args:
            phase: Its name.
            seconds: ``None`` when it starts or goes on, else how long it took.
            note: What it is doing now, worth a line of its own.
        """
        if note is not None:
            self._say(note)
        if seconds is None:
            self._running.setdefault(phase, time.monotonic())
            self._show()
            return
        self._running.pop(phase, None)
        if seconds >= _WORTH_A_LINE:
            self._say(f"{phase}: {units.seconds(seconds)}")

    def _show(self) -> None:
        if self._live is not None or not self._stream.isatty():
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream, highlight=False)
        self._live = Live(self, console=console, transient=True, refresh_per_second=5)
        self._live.start(refresh=True)

    def _say(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, markup=False)
        else:
            print(line, file=self._stream, flush=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The line of the phase that runs, drawn anew at every refresh."""
        if self._running:
            phase, started = next(reversed(self._running.items()))
            yield f"{phase}: {time.monotonic() - started:.0f} s"
