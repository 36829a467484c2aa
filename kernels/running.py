"""The parent's side of a benchmark: start the process, listen, go on after a crash.

Imports no JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hloscope.errors import HloscopeError
from hloscope.kernels.case import Case
from hloscope.kernels.measurement import Measured, Outcome
from hloscope.kernels.registry import parse_case

__all__ = ["Bench", "measure"]

_TAIL = 4000  # characters of what a process that died said last
_UNTOLD = "the process ended before it was measured"


@dataclass(frozen=True, slots=True)
class Bench:
    """What was measured, and where.

    Attributes:
        rows: One for each case, in their order.
        device: What JAX calls the device.
        platform: Its platform in JAX's words.
    """

    rows: tuple[Measured, ...]
    device: str
    platform: str


def measure(
    cases: Sequence[Case],
    *,
    rounds: int,
    seconds: float,
    interpret: bool = False,
    timeout: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bench:
    """Compile, check and time cases on the device at hand, in a process of their own.

    Args:
        cases: What to run; those of one shape and dtype stand together and are
            timed in turns.
        rounds: Timings of each.
        seconds: What the timings of one may take together, three at least.
        interpret: Whether Pallas kernels of other devices have their numbers checked.
        timeout: Seconds that one case, or the oracle of one shape, may go without news;
            ``None`` for no limit.
        progress: Told which case begins, or the oracle of which shape.

    Returns:
        A row for every case, whatever became of it: a process that a case takes
        down is started again for those that remain.

    Raises:
        HloscopeError: JAX does not start.
    """
    rows = {case.text: Measured(case, Outcome.FAILED, _UNTOLD) for case in cases}
    device = platform = ""
    left = list(cases)
    while left:
        texts = [case.text for case in left]
        request = {"cases": texts, "rounds": rounds, "seconds": seconds, "interpret": interpret}
        process = _Process(request, timeout, progress)
        for text in texts:
            rows[text] = Measured(rows[text].case, Outcome.FAILED, _UNTOLD)
        try:
            for event in process.events():
                if event["event"] == "device":
                    device, platform = event["kind"], event["platform"]
                elif event["event"] not in ("begin", "oracle", "run"):
                    rows[event["case"]] = rows[event["case"]].with_event(event)
        finally:
            process.end()
        if process.ended_well:
            break
        left = _without_culprit(process, left, rows)
    return Bench(tuple(rows[case.text] for case in cases), device, platform)


def _without_culprit(
    process: _Process, left: Sequence[Case], rows: dict[str, Measured]
) -> list[Case]:
    """What remains to be measured after a process died, and why the rest does not.

    Neighbours of the same shape are measured again, beside each other.

    Raises:
        HloscopeError: It died of no case.
    """
    culprit = process.current or process.oracle_of
    if culprit is None:
        raise HloscopeError("JAX did not start", detail=process.last_words)
    outcome, reason = process.verdict()
    group = rows[culprit].case.group
    if process.current is None:
        reason = f"while its oracle was computed, {reason}"
    lost = {
        case.text
        for case in left
        if case.text == process.current or (process.current is None and case.group == group)
    }
    for text in lost:
        rows[text] = dataclasses.replace(rows[text], outcome=outcome, reason=reason, times=None)
    first = next(n for n, case in enumerate(left) if case.group == group)
    return [case for case in left[first:] if case.text not in lost]


class _Process:
    """One measuring process, from its start to its end.

    Attributes:
        current: The case that runs; ``None`` between shapes.
        oracle_of: The first case of the shape whose turn it is; ``None`` before the first.
        last_words: The end of what it wrote to standard error; known at its end.
    """

    def __init__(
        self,
        request: dict[str, Any],
        timeout: float | None,
        progress: Callable[[str], None] | None,
    ) -> None:
        self._timeout = timeout
        self._progress = progress
        self._folder = tempfile.TemporaryDirectory(prefix="hloscope-")
        path = Path(self._folder.name) / "request.json"
        path.write_text(json.dumps(request))
        self._log = Path(self._folder.name) / "stderr"
        self._late = False
        self.current: str | None = None
        self.oracle_of: str | None = None
        self.last_words = ""
        environment = {**os.environ}
        environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        # Where an error was raised tells a kernel that refuses a shape from a mistake.
        environment["JAX_TRACEBACK_FILTERING"] = "off"
        with self._log.open("wb") as log:
            # A group of its own: Ctrl-C reaches the parent alone, which ends it.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "hloscope.kernels.measuring", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    @property
    def ended_well(self) -> bool:
        """Whether it came to its end by itself."""
        return self._process.returncode == 0 and not self._late

    def events(self) -> Any:
        """Everything that it says, until it ends or goes silent for too long."""
        assert self._process.stdout is not None
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            heard = time.monotonic()
            while True:
                wait = None
                at_work = self.current is not None or self.oracle_of is not None
                if self._timeout is not None and at_work:
                    wait = max(0.0, heard + self._timeout - time.monotonic())
                if not selector.select(wait):
                    self._late = True
                    return
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    self._process.wait()
                    return
                heard = time.monotonic()
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["event"] in ("begin", "run"):
                        self.current = event["case"]
                    if event["event"] == "oracle":
                        self.current, self.oracle_of = None, event["case"]
                        if self._progress is not None:
                            self._progress(f"oracle {'/'.join(parse_case(event['case']).group)}")
                    if event["event"] == "begin" and self._progress is not None:
                        self._progress(event["case"])
                    yield event

    def verdict(self) -> tuple[Outcome, str]:
        """What became of the case that was running when it ended."""
        code = self._process.returncode
        if self._late:
            return Outcome.FAILED, f"it ran out of time: {self._timeout:g} s were allowed"
        if code == -signal.SIGKILL:
            return Outcome.OUT_OF_MEMORY, "the process was killed, as for want of memory"
        how = f"signal {-code}"
        with contextlib.suppress(ValueError):
            how = signal.Signals(-code).name
        lines = self.last_words.splitlines()
        last = f": {lines[-1][:200]}" if lines else ""
        died = f"the process died of {how}" if code < 0 else f"the process ended with {code}"
        return Outcome.FAILED, died + last

    def end(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        with contextlib.suppress(OSError):
            self.last_words = self._log.read_text(errors="replace")[-_TAIL:].strip()
        self._folder.cleanup()
