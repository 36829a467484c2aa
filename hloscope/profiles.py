"""The programs that a profile embeds, as sources of HLO like any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hloscope.errors import InputError
from hloscope.ir import Module, read_proto
from hloscope.ir.load import LoadedModule
from hloscope.traces.files import find_run, is_xspace, list_runs
from hloscope.traces.reading import read_recording
from hloscope.traces.recording import Recording
from hloscope.traces.timeline import devices_of
from hloscope.traces.wire import LENGTH, WireError, fields

__all__ = ["is_profile", "modules_of_profile"]


def is_profile(source: str) -> bool:
    """Whether a file or a folder is what a profiler wrote: an XSpace, or a folder of them."""
    path = Path(source)
    if path.is_dir():
        return any(run.are_xspaces for run in list_runs(path))
    return path.name.endswith((".xplane.pb", ".xplane.pb.gz"))


def modules_of_profile(source: str) -> list[LoadedModule]:
    """The embedded programs, the one first that devices spent most time in.

    Hosts run the same programs: the first one's are taken.

    Raises:
        InputError: Nothing can be read, or no program is embedded.
    """
    path = next(path for path in find_run(Path(source)).files if is_xspace(path))
    recording = read_recording(path)
    if not recording.programs:
        raise InputError(
            "no program is embedded in it",
            place=str(path),
            hint="Give the HLO of the program, and the profile with --trace.",
        )
    times = _times(recording)
    order = sorted(recording.programs, key=lambda program: -times.get(program, 0))
    contents = {program: recording.programs[program]() for program in order}
    return [
        LoadedModule(
            name := _name(contents[program]) or f"program_{program}",
            f"{name}({program})",
            path.name,
            "after optimizations",
            len(contents[program]),
            _reading(contents[program], f"{path}: {name}({program})"),
        )
        for program in order
    ]


def _times(recording: Recording) -> dict[int, int]:
    """Picoseconds of each program's work, added up."""
    times: dict[int, int] = {}
    for device in devices_of(recording):
        programs, places = np.unique(device.work.programs, return_inverse=True)
        sums = np.bincount(places, device.work.durations, len(programs))
        for program, time in zip(programs.tolist(), sums.tolist(), strict=True):
            times[program] = times.get(program, 0) + int(time)
    return times


def _name(content: bytes) -> str:
    """The name of a serialized module, without reading the rest of it."""
    view = memoryview(content)
    try:
        for module in fields(view, 0, len(content)):
            if module.number == 1 and module.wire == LENGTH:
                for each in fields(view, module.value, module.end):
                    if each.number == 1 and each.wire == LENGTH:
                        return bytes(view[each.value : each.end]).decode("utf-8", "replace")
    except WireError:
        pass
    return ""


def _reading(content: bytes, file: str) -> Callable[[], Module]:
    return lambda: read_proto(content, file=file)
