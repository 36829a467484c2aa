"""The process in which JAX runs: ``python -m hloscope.capture.worker``.

It is started by :mod:`hloscope.capture.run` with a request file, a folder for
results and two inherited file descriptors: events go out through one, a line of
JSON each; the other ends when the parent does, and so does this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hloscope.capture.dependencies import Recorder
from hloscope.capture.run import COMPILER_LOG, FACTS, RESULT
from hloscope.chips import CHIPS
from hloscope.errors import CaptureError, HloscopeError


class Events:
    """The way back to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.phase = "start"

    def send(self, **event: Any) -> None:
        """Write one event; a parent that is gone is no reason to fail here."""
        with contextlib.suppress(OSError):
            data = (json.dumps(event) + "\n").encode()
            while data:
                data = data[os.write(self._descriptor, data) :]

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Report that ``phase`` begins and, if nothing is raised, ends."""
        self.phase = phase
        self.send(event="begin", phase=phase)
        start = time.perf_counter()
        yield
        self.send(event="end", phase=phase, seconds=time.perf_counter() - start)


def main(arguments: list[str]) -> int:
    """Run one capture; see the module's text for the arguments."""
    request_path, folder, events_descriptor, lifeline = arguments
    events = Events(int(events_descriptor))
    _end_with_parent(int(lifeline))
    message = json.loads(Path(request_path).read_text())
    # The plug-ins are known by their versions; the results and the cache are
    # nobody's input.
    cache = [message["cache"]] if message["cache"] else []
    recorder = Recorder(apart_from=[*message["plugin_folders"], *cache, folder])
    recorder.start()
    try:
        _capture(message, Path(folder), events, recorder)
    except HloscopeError as error:
        events.send(event="error", **_described(error))
        return 1
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: a user's file may raise anything.
        chip = message["request"]["target"].partition(":")[0]
        events.send(event="error", **_described(_of_user(error, events.phase, chip)))
        return 1
    events.send(event="done")
    return 0


def _end_with_parent(lifeline: int) -> None:
    def watch() -> None:
        while os.read(lifeline, 1):
            continue
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _capture(message: dict[str, Any], folder: Path, events: Events, recorder: Recorder) -> None:
    _hide_plugins(message["plugin_folders"])
    with events.during("start"):
        import jax

        from hloscope.capture import jax_private, locations
        from hloscope.capture.devices import device_mesh, target_devices
        from hloscope.capture.loading import import_root, load_step
        from hloscope.capture.persistent_cache import has_persistent_cache
        from hloscope.capture.request import CaptureRequest, SourceKind

        request = CaptureRequest.from_json(message["request"])
        sources = locations.source_prefix_pattern(
            [str(import_root(Path(request.source.text)))]
            if request.source.kind is SourceKind.FILE
            else []
        )
        jax.config.update("jax_hlo_source_file_canonicalization_regex", sources)
        # Frames are left out by hloscope itself, and a compile that comes out
        # of JAX's cache would tell nothing about how long a compile takes.
        jax.config.update("jax_traceback_filtering", "off")
        jax.config.update("jax_enable_compilation_cache", False)
        for ours in (str(Path(__file__).resolve().parent) + os.sep, "<frozen "):
            jax_private.hide_frames_under(ours)
        target = request.parsed_target()
        devices = target_devices(target)
        mesh = None
        axes = dict(request.mesh)
        if target.is_local:
            from hloscope.capture.request import check_mesh

            check_mesh(axes, target.text, len(devices))
        if not axes and len(devices) > 1 and request.source.kind is SourceKind.ARCH:
            axes = {"data": len(devices)}
        if axes:
            mesh = device_mesh(axes, devices)

    with events.during("import"):
        sys.path.insert(0, str(Path.cwd()))
        step = load_step(request, devices, mesh)
        persistent = None
        if not request.source.kind.is_ours:
            persistent = has_persistent_cache()

    from hloscope.capture.assembly import build_artifact
    from hloscope.capture.cache import ProgramCache

    cache = message["cache"]
    artifact = build_artifact(
        request,
        step,
        target,
        devices,
        mesh,
        axes,
        phase=events.during,
        plugins=message["plugin_versions"],
        compiler_log=folder / COMPILER_LOG,
        programs=None if cache is None else ProgramCache(Path(cache)),
    )
    artifact = dataclasses.replace(artifact, persistent_cache=persistent)
    artifact.save(folder / RESULT)
    facts = {"cached": artifact.cached, "files": recorder.finish()}
    (folder / FACTS).write_text(json.dumps(facts))


def _hide_plugins(folders: list[str]) -> None:
    """Keep the plug-in folders from what the user's code may start."""
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    after = [entry for entry in before if entry and entry not in folders]
    if after:
        os.environ["PYTHONPATH"] = os.pathsep.join(after)
    else:
        os.environ.pop("PYTHONPATH", None)


_DOING = {
    "start": "JAX did not start",
    "import": "the step could not be imported",
    "trace": "the step could not be traced",
    "lower": "the step could not be lowered",
    "compile": "the step could not be compiled",
    "read": "the compiled program could not be read",
}


def _of_user(error: BaseException, phase: str, chip: str) -> HloscopeError:
    detail: str | None
    try:
        from hloscope.capture.tracebacks import user_traceback

        detail = user_traceback(error)
    except ImportError:
        # JAX itself is what cannot be imported.
        detail = f"{type(error).__name__}: {error}"
    hint = None
    known = CHIPS.get(chip)
    is_gpu = known is not None and known.gpu is not None
    if is_gpu and isinstance(error, RuntimeError) and "cuDNN" in str(error):
        # JAX wants the library itself before it traces cuDNN's attention.
        hint = (
            f"If it is cuDNN's library that JAX misses: `hloscope targets install {chip} "
            "--with-cudnn`."
        )
    return CaptureError(_DOING[phase], phase=phase, detail=detail, hint=hint)


def _described(error: HloscopeError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "place": error.place,
        "detail": error.detail,
        "hint": error.hint,
        "phase": getattr(error, "phase", None),
    }


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # XLA's and libtpu's threads may hang or crash in their destructors; all
    # that matters has been written.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
