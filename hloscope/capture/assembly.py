"""From a Step to an Artifact: the phases in order, and the cache of programs between them.

Runs in the worker.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import metadata
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from hloscope.capture import stages
from hloscope.capture.artifact import Artifact
from hloscope.capture.cache import ProgramCache, fingerprint
from hloscope.capture.leaves import mesh_axes, read_signature, with_shardings
from hloscope.capture.locations import shorten_paths
from hloscope.capture.request import CaptureRequest, SourceKind
from hloscope.capture.run import LOG_LEVELS
from hloscope.capture.step import Step
from hloscope.chips import ChipKind, Target
from hloscope.ir.compiler_log import read_full_rematerializations, read_slow_folds

__all__ = ["build_artifact"]

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "hloscope")
_FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")

_WITHOUT_TRITON = (
    "compiled without XLA's Triton products, so these are cuBLAS calls: its default tiling does "
    "not fit one of them, and without the card nothing is autotuned"
)


def build_artifact(
    request: CaptureRequest,
    step: Step,
    target: Target,
    devices: Sequence[Any],
    mesh: Mesh | None,
    axes: Mapping[str, int],
    *,
    phase: Callable[[str], AbstractContextManager[None]],
    plugins: Mapping[str, str],
    compiler_log: Path,
    programs: ProgramCache | None,
) -> Artifact:
    """Trace, lower, compile and read ``step``; a program known from before is not compiled.

    Args:
        request: What was asked for.
        step: The step that it led to.
        target: The chips.
        devices: Their devices.
        mesh: The mesh over them, if any.
        axes: The mesh's axes and sizes.
        phase: Reports the beginning and the end of a phase.
        plugins: Versions of the compile-only plug-ins in use.
        compiler_log: Where what XLA says while compiling is kept.
        programs: Programs that were compiled before, or ``None`` to compile anew.

    Raises:
        HloscopeError: The step does not go through. Whatever else is raised
            comes from the user's code or from JAX.
    """
    present = target.chip is None or target.chip.kind is ChipKind.CPU
    lowered = stages.lower_step(step, devices, mesh=mesh, present=present, phase=phase)
    signature = read_signature(step, lowered.plain)
    versions = _versions(plugins)
    flags = {name: os.environ[name] for name in _FLAG_VARIABLES if os.environ.get(name)}
    known: Artifact | None = None
    key = ""
    if programs is not None:
        key = fingerprint(
            stages.program_digest(lowered),
            dataclasses.asdict(signature),
            target.text,
            devices[0].device_kind,
            len(devices),
            versions,
            flags,
            dict(request.compiler_options),
        )
        known = programs.get(key)
    if known is not None:
        artifact = dataclasses.replace(
            known, timings={**known.timings, **lowered.timings}, cached=True
        )
    else:
        with stages.standard_error_in(compiler_log):
            compiled, seconds, used = stages.compile_step(
                lowered, request.compiler_options, devices, target.text, phase
            )
        with phase("read"):
            program = stages.read_program(lowered, compiled)
            signature = with_shardings(signature, compiled)
            own_mesh = mesh_axes(compiled)
        errors, warnings = _said(compiler_log, "2"), _said(compiler_log, "1")
        artifact = Artifact(
            hlo_text=program.hlo_text,
            lowered_text=program.lowered_text,
            signature=signature,
            target=target.text,
            device_kind=devices[0].device_kind,
            devices=len(devices),
            source="",
            name="",
            versions=versions,
            mesh=own_mesh,
            flags={
                **{name: shorten_paths(text) for name, text in flags.items()},
                **{name: shorten_paths(str(value)) for name, value in used.items()},
            },
            timings={**lowered.timings, "compile": seconds},
            xla_cost=program.xla_cost,
            xla_cost_note=program.xla_cost_note,
            xla_memory=program.xla_memory,
            xla_memory_note=program.xla_memory_note,
            literals=program.literals,
            literals_note=program.literals_note,
            slow_folds=None if errors is None else read_slow_folds(errors),
            full_rematerializations=(
                None if warnings is None else read_full_rematerializations(warnings)
            ),
        )
    messages = list(lowered.warnings)
    if stages.TRITON_PRODUCTS in artifact.flags.keys() - request.compiler_options.keys():
        messages.append(_WITHOUT_TRITON)
    artifact = dataclasses.replace(
        artifact,
        source=_describe(request),
        name=step.name or str(getattr(step.fn, "__name__", "step")),
        mesh=dict(axes) or artifact.mesh,
        jaxpr=lowered.jaxpr,
        jaxpr_note=lowered.jaxpr_note and shorten_paths(lowered.jaxpr_note),
        closed_over=lowered.closed_over,
        closed_over_note=lowered.closed_over_note and shorten_paths(lowered.closed_over_note),
        promotions=lowered.promotions,
        promotions_note=lowered.promotions_note and shorten_paths(lowered.promotions_note),
        named_points=lowered.named_points,
        named_points_note=lowered.named_points_note and shorten_paths(lowered.named_points_note),
        warnings=tuple(shorten_paths(text) for text in messages),
    )
    if programs is not None and known is None:
        programs.put(key, artifact)
    return artifact


def _said(compiler_log: Path, level: str) -> str | None:
    """What XLA said, unless the environment keeps it from saying what is of this level."""
    if any(os.environ.get(name, "") > level for name in LOG_LEVELS):
        return None
    return compiler_log.read_text(errors="replace")


def _versions(plugins: Mapping[str, str]) -> dict[str, str]:
    return {
        **{name: metadata.version(name) for name in _PACKAGES},
        "python": ".".join(map(str, sys.version_info[:3])),
        **plugins,
    }


def _describe(request: CaptureRequest) -> str:
    source = request.source
    if source.kind is SourceKind.ARCH:
        chosen = "".join(f" {key}={value}" for key, value in request.options.items())
        bad = "".join(f" bad {name}" for name in request.bad)
        return f"{source.text} ({request.preset}{chosen}{bad})"
    if source.kind is SourceKind.FILE and os.path.isabs(source.text):
        path = Path(source.text)
        inside = path.is_relative_to(Path.cwd())
        shown = path.relative_to(Path.cwd()) if inside else Path(path.name)
        return f"{shown}:{source.attribute}"
    return str(source)
