"""The parent's side of a capture: start the worker, listen to it, end it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hloscope.capture.artifact import Artifact
from hloscope.capture.dependencies import FileState
from hloscope.capture.plugins import Plugins
from hloscope.capture.request import CaptureRequest
from hloscope.chips import ChipKind, Target
from hloscope.errors import CaptureError, HloscopeError, InputError, TargetError, UsageError

__all__ = ["COMPILER_LOG", "FACTS", "LOG_LEVELS", "RESULT", "PhaseEvent", "Progress", "run_worker"]

_FATAL = re.compile(r"\s*F\d{4} |.*Check fail")
"""How Google's logging begins the line on which a process gives up."""

RESULT = "artifact.hloscope"
"""The artifact, in the worker's folder."""

FACTS = "facts.json"
"""What the parent has to know beside it: whether it was cached, and which files it read."""

COMPILER_LOG = "compiler.log"
"""What the worker's compiler says on standard error while it compiles."""

LOG_LEVELS = ("TF_CPP_MIN_LOG_LEVEL", "TPU_STDERR_LOG_LEVEL")
"""What keeps XLA and libtpu from saying on standard error what is below a level (2: errors)."""

_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class PhaseEvent:
    """News of a capture that is under way.

    Attributes:
        phase: ``install``, ``start``, ``import``, ``trace``, ``lower``,
            ``compile`` or ``read``.
        seconds: How long the phase took; ``None`` when it begins.
        note: More on what is being done, if there is more.
    """

    phase: str
    seconds: float | None = None
    note: str | None = None


Progress = Callable[[PhaseEvent], None]


def run_worker(
    request: CaptureRequest,
    target: Target,
    plugins: Plugins,
    cache: Path | None,
    progress: Progress,
) -> tuple[Artifact, list[FileState] | None]:
    """Capture in a process of its own.

    Args:
        request: What to capture.
        target: Its target.
        plugins: What the worker gets on its path.
        cache: The cache folder, or ``None`` to compile anew.
        progress: Told of each phase.

    Returns:
        The artifact, and the state of the files that it depends on (``None``
        when it depends on more than can be checked).

    Raises:
        HloscopeError: What went wrong in the worker.
    """
    message = {
        "request": request.to_json(),
        "plugin_folders": [str(path) for path in plugins.folders],
        "plugin_versions": plugins.versions,
        "cache": None if cache is None else str(cache),
    }
    folder = _working_folder(json.dumps(message))
    try:
        _Worker(request, target, plugins, folder, progress).run()
        artifact = Artifact.load(folder / RESULT)
        facts = json.loads((folder / FACTS).read_text())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return dataclasses.replace(artifact, cached=facts["cached"]), facts["files"]


def _working_folder(message: str) -> Path:
    """A folder for one worker, with its request in it."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="hloscope-"))
        (folder / "request.json").write_text(message)
    except OSError as error:
        raise CaptureError(
            f"the worker's folder cannot be made: {error.strerror or error}",
            phase="start",
            place=error.filename,
            hint="Free some space there, or set TMPDIR to another disk.",
        ) from error
    return folder


class _Worker:
    """One worker process, from its start to its end."""

    def __init__(
        self,
        request: CaptureRequest,
        target: Target,
        plugins: Plugins,
        folder: Path,
        progress: Progress,
    ) -> None:
        self._request = request
        self._target = target
        self._plugins = plugins
        self._folder = folder
        self._progress = progress
        self._phase = "start"
        self._events = b""
        self._tail = b""
        self._error: HloscopeError | None = None
        self._done = False

    def run(self) -> None:
        """Run to the end.

        Raises:
            HloscopeError: The worker reported an error, ran out of time or died.
        """
        events_out, events_in = os.pipe()
        lifeline_out, lifeline_in = os.pipe()
        try:
            # A group of its own: Ctrl-C reaches the parent alone, and the
            # worker goes with all that it started.
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "hloscope.capture.worker",
                    str(self._folder / "request.json"),
                    str(self._folder),
                    str(events_in),
                    str(lifeline_out),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(events_in, lifeline_out),
                env=self._environment(),
                start_new_session=True,
            )
            os.close(events_in)
            events_in = -1
            try:
                self._listen(process, events_out)
            finally:
                _end(process)
        finally:
            for descriptor in (events_out, events_in, lifeline_out, lifeline_in):
                if descriptor >= 0:
                    os.close(descriptor)
        if self._error is not None:
            raise self._error
        if not self._done:
            raise self._crash(process.returncode)

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        # Warnings count: XLA's partitioner says there what it could not do well.
        for level in LOG_LEVELS:
            environment.setdefault(level, "1")
        chip = self._target.chip
        if chip is not None:
            # With the platform fixed, the CUDA plug-in does not look for a driver.
            environment["JAX_PLATFORMS"] = "cpu"
            environment["TPU_SKIP_MDS_QUERY"] = "1"
            # Compiling uses no chip, so libtpu's lock against a second process is in the way.
            environment["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
        if chip is not None and chip.kind is ChipKind.CPU and (self._target.devices or 1) > 1:
            flags = environment.get("XLA_FLAGS", "")
            count = f"--xla_force_host_platform_device_count={self._target.devices}"
            environment["XLA_FLAGS"] = f"{flags} {count}".strip()
        entries = [str(path) for path in self._plugins.folders]
        if environment.get("PYTHONPATH"):
            entries.append(environment["PYTHONPATH"])
        if entries:
            environment["PYTHONPATH"] = os.pathsep.join(entries)
        return environment

    def _listen(self, process: subprocess.Popen[bytes], events: int) -> None:
        assert process.stdout is not None
        limit = self._request.timeout
        deadline = None if limit is None else time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(events, selectors.EVENT_READ, self._hear_event)
            selector.register(process.stdout, selectors.EVENT_READ, self._hear_output)
            while selector.get_map():
                # Something that the worker started may hold the pipes open
                # after it, so its own end is looked at as well.
                ended = process.poll() is not None
                wait = 0.0 if ended else 0.2
                if deadline is not None:
                    wait = min(wait, max(0.0, deadline - time.monotonic()))
                ready = selector.select(wait)
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if data:
                        key.data(data)
                    else:
                        selector.unregister(key.fileobj)
                if ended and not ready:
                    break
                if deadline is not None and time.monotonic() >= deadline and not self._done:
                    raise self._out_of_time(limit)
        if deadline is None:
            process.wait()
            return
        try:
            process.wait(max(0.0, deadline - time.monotonic()) if not self._done else 10)
        except subprocess.TimeoutExpired:
            if not self._done:
                raise self._out_of_time(limit) from None

    def _hear_output(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def _hear_event(self, data: bytes) -> None:
        *lines, self._events = (self._events + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            kind = event["event"]
            if kind == "begin":
                self._phase = event["phase"]
                self._progress(PhaseEvent(self._phase))
            elif kind == "end":
                self._progress(PhaseEvent(event["phase"], seconds=event["seconds"]))
            elif kind == "error":
                self._error = _rebuilt(event)
            elif kind == "done":
                self._done = True

    def _out_of_time(self, limit: float | None) -> CaptureError:
        return CaptureError(
            f"the capture ran out of time: {limit:g} s were allowed, and it was in the "
            f"phase `{self._phase}`",
            phase=self._phase,
            place=str(self._request.source),
            hint="Give it more with --timeout, or try a smaller preset first.",
        )

    def _compiler_log(self) -> bytes:
        """The end of what the compiler said before it took the process down."""
        with contextlib.suppress(OSError):
            return (self._folder / COMPILER_LOG).read_bytes()[-_TAIL_BYTES:]
        return b""

    def _crash(self, code: int) -> CaptureError:
        if code < 0:
            try:
                how = f"died of {signal.Signals(-code).name}"
            except ValueError:
                how = f"died of signal {-code}"
        else:
            how = f"ended with exit code {code}"
        every = (self._tail + self._compiler_log()).decode(errors="replace").splitlines()
        # What failed is often said before a stack of frames that nobody can read.
        reason = [line for line in every[:-_TAIL_LINES] if _FATAL.match(line)][-1:]
        lines = reason + every[-_TAIL_LINES:]
        memory = code == -signal.SIGKILL
        return CaptureError(
            f"the worker {how} in the phase `{self._phase}`",
            phase=self._phase,
            place=str(self._request.source),
            detail="\n".join(f"    {line}" for line in lines) or None,
            hint="It may have run out of memory: try a smaller preset or batch."
            if memory
            else "These are its last lines. A crash in the compiler is worth a bug report to XLA.",
        )


def _rebuilt(event: dict[str, Any]) -> HloscopeError:
    """The error that the worker described, as the class that it was."""
    shared = {name: event[name] for name in ("place", "detail", "hint")}
    if event["kind"] == "CaptureError":
        return CaptureError(event["message"], phase=event["phase"] or "start", **shared)
    kind = _SIMPLE_ERRORS.get(event["kind"], HloscopeError)
    return kind(event["message"], **shared)


_SIMPLE_ERRORS: dict[str, type[HloscopeError]] = {
    kind.__name__: kind for kind in (InputError, TargetError, UsageError)
}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
