"""What ``hloscope kernels`` and ``hloscope bench`` ask of the registry, as reports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from hloscope.chips import ChipKind, Target, parse_target
from hloscope.errors import HloscopeError, TargetError, UsageError
from hloscope.pipeline.findings import Quantity, Report
from hloscope.pipeline.session import AnalysisFailedError, Session
from hloscope.sessions import open_session
from hloscope.sources import LoadOptions, Progress, load
from hloscope.subjects import ModuleSubject

if TYPE_CHECKING:
    from hloscope.answers.kernel_route import Route
    from hloscope.kernels.measurement import Measured

__all__ = ["bench", "compare_kernels", "list_kernels"]

ROUNDS = 20
SECONDS = 3.0

LISTED = ("cpu", "h100", "v5e")
"""Targets of the list, where none is asked for."""


def list_kernels(targets: Sequence[str] = LISTED) -> Report:
    """Say which kernels there are, and what each target takes of them.

    Args:
        targets: Names of targets.

    Raises:
        UsageError: ``local`` is among them: what is attached is found out by running.
        TargetError: There is no such chip.
    """
    from hloscope.answers.kernels import list_kernels as report_list

    parsed = [parse_target(name) for name in targets]
    if any(target.is_local for target in parsed):
        raise UsageError(
            "the list is for chips by their names",
            place="--target local",
            hint="Name the chip, or run `hloscope bench FAMILY` on it.",
        )
    return report_list(parsed, blockers(parsed))


def compare_kernels(
    family: str,
    *,
    shape: str = "",
    switches: Sequence[str] = (),
    implementations: Sequence[str] = (),
    dtype: str | None = None,
    backward: bool = False,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Compile the implementations of a family for a target: routes, FLOPs, memory, launches.

    Args:
        family: Name of the family.
        shape: Sizes that are not the defaults, such as ``b4,s1024,h8,d64``.
        switches: Settings as ``name=value``, such as ``causal=1``.
        implementations: Names; all of the family's if empty.
        dtype: What the operands are in; the family's first otherwise.
        backward: Whether gradients are computed as well.
        progress: As for :func:`hloscope.load`.
        **options: As for :func:`hloscope.load`: the target, and how it is compiled.

    Raises:
        UsageError: There is no such family, size, setting, implementation or dtype.
        TargetError: There is no such chip.
    """
    from hloscope.answers.kernels import report_routes
    from hloscope.kernels import registry
    from hloscope.kernels.case import Case, Direction

    target = parse_target(options.get("target") or "cpu")
    found = registry.get(family)
    sizes, settings = registry.parse_shape(found, shape)
    cases = registry.cases_of(
        found,
        sizes=sizes,
        settings={**settings, **registry.parse_settings(found, switches)},
        implementations=implementations,
        dtype=dtype or "",
        direction=Direction.BACKWARD if backward else Direction.FORWARD,
    )

    def opened(case: Case) -> Session:
        name, started = case.implementation.name, time.perf_counter()
        if progress is not None:
            progress(name, None, name)
        subject = load(f"kernel:{case.text}", progress=progress, **options)
        if progress is not None:
            progress(name, time.perf_counter() - started)
        return open_session(subject, progress)

    missing = {} if options.get("install") else blockers([target])
    return report_routes(cases, target, opened, missing)


def bench(
    family: str,
    *,
    shape: str = "",
    lengths: Sequence[int] = (),
    widths: Sequence[int] = (),
    switches: Sequence[str] = (),
    implementations: Sequence[str] = (),
    dtype: str | None = None,
    backward: bool = False,
    interpret: bool = False,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Time the implementations of a family on the device at hand, each beside its errors.

    Args:
        family: Name of the family.
        shape: Sizes that are not the defaults, such as ``b4,h8``.
        lengths: Values of the size ``s``, each with each of ``widths``.
        widths: Values of the size ``d``.
        switches: Settings as ``name=value``, such as ``causal=1``.
        implementations: Names; all of the family's if empty.
        dtype: What the operands are in; the family's first otherwise.
        backward: Whether the gradients are timed and checked as well.
        interpret: Whether Pallas kernels of other devices have their numbers checked.
        rounds: Timings of each implementation.
        seconds: What they may take together; three are done at least.
        timeout: Seconds that one case may take to compile or to run, or the oracle of a shape.
        progress: Told which case begins.

    Raises:
        UsageError: There is no such family, size, setting, implementation or dtype.
        HloscopeError: JAX does not start.
    """
    from itertools import product

    from hloscope.answers.bench import report_bench
    from hloscope.kernels import registry
    from hloscope.kernels.case import Direction
    from hloscope.kernels.measurement import Outcome
    from hloscope.kernels.running import measure
    from hloscope.versions import installed

    found = registry.get(family)
    sizes, settings = registry.parse_shape(found, shape)
    settings.update(registry.parse_settings(found, switches))
    directions = [Direction.FORWARD, *([Direction.BACKWARD] if backward else [])]
    every_length: Sequence[int | None] = tuple(dict.fromkeys(lengths)) or (None,)
    every_width: Sequence[int | None] = tuple(dict.fromkeys(widths)) or (None,)
    cases = []
    for length, width in product(every_length, every_width):
        own = dict(sizes)
        own.update({} if length is None else {"s": length})
        own.update({} if width is None else {"d": width})
        for direction in directions:
            cases += registry.cases_of(
                found,
                sizes=own,
                settings=settings,
                implementations=implementations,
                dtype=dtype or "",
                direction=direction,
            )

    running: list[tuple[str, float]] = []

    def tell(text: str | None) -> None:
        """A phase for each case: it ends where the next one begins."""
        if progress is None:
            return
        while running:
            phase, started = running.pop()
            progress(phase, time.perf_counter() - started)
        if text is not None:
            running.append((text, time.perf_counter()))
            progress(text, None)

    measured = measure(
        cases,
        rounds=rounds,
        seconds=seconds,
        interpret=interpret,
        timeout=timeout,
        progress=tell,
    )
    tell(None)
    header: dict[str, str | Quantity] = {
        "device": f"{measured.device} ({measured.platform})",
        "versions": f"jax {installed('jax')}, jaxlib {installed('jaxlib')}",
        "rounds": Quantity("rounds", rounds),
    }
    names = dict.fromkeys(
        row.case.implementation.name
        for row in measured.rows
        if row.outcome is Outcome.UNSUPPORTED
        and row.case.implementation.interpreted
        and row.case.implementation.refused(row.case, None) is None
    )
    notes = []
    if names and measured.platform == "cpu" and not interpret:
        notes.append(f"--interpret checks the numbers of {', '.join(names)} on this processor")
    return report_bench(measured.rows, header, _route_of, notes)


def _route_of(row: Measured) -> Route | None:
    """The route of a measured program; none where its module cannot be followed."""
    from hloscope.answers.kernel_route import read_route
    from hloscope.ir import parse_text

    try:
        subject = ModuleSubject(parse_text(row.hlo), row.case.text)
        return read_route(open_session(subject, None))
    except (HloscopeError, AnalysisFailedError):
        return None


def blockers(targets: Sequence[Target]) -> Mapping[str, str]:
    """What is not installed: by target, or by ``target/implementation`` if only that needs it."""
    from hloscope.capture.plugins import COMPONENTS, find_plugins, is_available

    found = {}
    for target in targets:
        try:
            find_plugins(target)
        except TargetError as error:
            found[target.text] = f"{error.message}: hloscope targets install {target.text}"
            continue
        is_gpu = target.chip is not None and target.chip.kind is ChipKind.GPU
        if is_gpu and not is_available(COMPONENTS["cudnn12"]):
            found[f"{target.text}/cudnn"] = (
                f"cuDNN's library is missing: hloscope targets install {target.text} --with-cudnn"
            )
    return found
