"""From a file or a folder to recordings, and to what is kept of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from hloscope.errors import InputError
from hloscope.traces.chrome_recording import read_chrome_trace
from hloscope.traces.files import find_run, is_xspace
from hloscope.traces.operations import with_shared_programs
from hloscope.traces.recording import Recording
from hloscope.traces.summary import HostSummary, Trace, summarize
from hloscope.traces.windows import WindowChoice
from hloscope.traces.xspace import read_xspace
from hloscope.traces.xspace_recording import recording_of

__all__ = ["read_recording", "read_trace"]

_WORTH_A_PROCESS = 32 << 20  # bytes of all files, below which starting processes takes longer

Progress = Callable[[str, float | None], None]


def read_recording(path: Path) -> Recording:
    """One file.

    Raises:
        InputError: It cannot be read, or nothing was recorded in it.
    """
    recording = recording_of(read_xspace(path)) if is_xspace(path) else read_chrome_trace(path)
    if not any(section.lanes for section in recording.sections):
        if recording.cut:
            raise InputError(
                f"{recording.cut}; nothing of use stands before that",
                place=str(path),
                hint="Take the file again from where it was recorded, or wait until the profiler "
                "has written all of it.",
            )
        raise InputError(
            "there is no event in it",
            place=str(path),
            hint="Profile something that runs: the profiler stopped before anything did, or the "
            "file was still being written.",
        )
    return recording


def read_trace(
    source: Path,
    run: str | None = None,
    choice: WindowChoice | None = None,
    progress: Progress | None = None,
    columns: int = 0,
    compared: bool = False,
) -> Trace:
    """Read a run and sum it up, host by host.

    Args:
        source: A file, or a folder of runs.
        run: Name of the run; the newest where left out.
        choice: Which window is looked at.
        progress: Called with a phase and ``None`` when it starts, with its seconds when it ends.
        columns: Into how many columns the window is cut for a picture; 0 for none.
        compared: Whether it is compared with another run.

    Raises:
        InputError: There is nothing to read, or none of it is understood.
        UsageError: No run has that name.
    """
    found = find_run(source, run)
    say = progress or (lambda _phase, _seconds: None)
    started = time.perf_counter()
    say("read the profile", None)
    hosts, failed = [], []
    programs: dict[bytes, bytes] = {}
    summarized = partial(_summarized, choice=choice, columns=columns, compared=compared)
    summaries = _summaries(found.files, summarized)
    for path, result in zip(found.files, summaries, strict=True):
        if isinstance(result, InputError):
            failed.append((path, result))
        else:
            hosts.append(with_shared_programs(result, programs))
    say("read the profile", time.perf_counter() - started)
    if not hosts and failed:
        first = failed[0][1]
        if run is None and found.others:
            first.hint = (
                f"{first.hint or ''} Or give an older run: --run {found.others[0]}.".strip()
            )
        raise first
    trace = Trace(
        found.name,
        tuple(hosts),
        (
            *(f"the run {name} is newer, and holds no file yet" for name in found.unfinished),
            *(f"{path.name} is left out: {error.message}" for path, error in failed),
        ),
    )
    if not trace.devices:
        seen = [lane for host in hosts for lane in host.lanes]
        cut = next((f"{host.cut}; before that " for host in hosts if host.cut), "")
        raise InputError(
            f"{cut}no line here is understood: nothing in it is a device's work",
            place=str(source),
            detail="\n".join(f"    {lane}" for lane in seen[:20]),
            hint="Record with jax.profiler.trace while a jitted step runs.",
        )
    return trace


def _summaries(
    files: tuple[Path, ...], summarized: Callable[[Path], HostSummary | InputError]
) -> Iterator[HostSummary | InputError]:
    """What is kept of each file: in this process, or in several where that is worth it."""
    workers = min(len(files), _cores())
    size = sum(path.stat().st_size for path in files if path.exists())
    if workers < 2 or size < _WORTH_A_PROCESS:
        yield from (summarized(path) for path in files)
        return
    # Started afresh: what this process holds, threads of JAX among it, is not copied.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(summarized, files)
        except BrokenProcessPool as error:
            raise InputError(
                "a process that read one of the files was ended",
                place=str(files[0].parent),
                hint="Memory may have run out: give one file at a time.",
            ) from error


def _cores() -> int:
    """How many cores this process may use; not every system says which."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _summarized(
    path: Path, *, choice: WindowChoice | None, columns: int, compared: bool
) -> HostSummary | InputError:
    try:
        return summarize(read_recording(path), choice, columns, compared)
    except InputError as error:
        return error
