"""One capture from the request to the artifact, by way of the cache."""

from __future__ import annotations

import os
import time

from hloscope.capture.artifact import Artifact
from hloscope.capture.cache import RequestCache, request_key
from hloscope.capture.folders import cache_folder
from hloscope.capture.plugin_install import install_component
from hloscope.capture.plugins import Plugins, components_of, find_plugins, is_available
from hloscope.capture.request import CaptureRequest, SourceKind
from hloscope.capture.run import PhaseEvent, Progress, run_worker
from hloscope.chips import Target

__all__ = ["capture"]


def capture(request: CaptureRequest, *, progress: Progress | None = None) -> Artifact:
    """Compile a step for a target and keep all that is known of the result.

    Args:
        request: The step, the target, and how to build the one for the other.
        progress: Told when a phase begins and when it ends.

    Raises:
        UsageError: The request names something that does not exist or does not fit.
        TargetError: The target cannot be compiled for here.
        CaptureError: The step cannot be imported, traced, lowered or compiled,
            or it ran out of time.
    """
    tell = progress or _silent
    target = request.parsed_target()
    if request.source.kind is SourceKind.ARCH:
        from hloscope.models import registry

        # Known without JAX: an unknown name or option is answered at once.
        kind = target.chip.kind if target.chip is not None else None
        registry.get(request.source.text).check(request.options, request.bad, kind)
    plugins = _plugins(request, target, tell)
    # A dump that was asked for is written only by a compile that takes place.
    use_cache = request.use_cache and "--xla_dump" not in os.environ.get("XLA_FLAGS", "")
    # What is attached to a machine can change with no file changing.
    index = RequestCache(cache_folder()) if use_cache and not target.is_local else None
    key = request_key(request, plugins.versions) if index is not None else ""
    if index is not None:
        known = index.get(key)
        if known is not None:
            return known
    programs = cache_folder() if use_cache else None
    artifact, files = run_worker(request, target, plugins, programs, tell)
    if index is not None and files is not None:
        index.put(key, artifact, files)
    return artifact


def _plugins(request: CaptureRequest, target: Target, tell: Progress) -> Plugins:
    if request.install:
        wanted = components_of(target, with_cudnn=request.with_cudnn)
        missing = [component for component in wanted if not is_available(component)]
        if missing:
            start = time.perf_counter()
            tell(PhaseEvent("install"))
            for component in missing:
                install_component(
                    component, progress=lambda line: tell(PhaseEvent("install", note=line))
                )
            tell(PhaseEvent("install", seconds=time.perf_counter() - start))
    return find_plugins(target)


def _silent(event: PhaseEvent) -> None:
    del event
