"""What is asked of several programs at once: every architecture, or one with every policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Unpack

from hloscope.errors import UsageError
from hloscope.pipeline.findings import Quantity, Report
from hloscope.pipeline.session import Session
from hloscope.sessions import open_session
from hloscope.sources import LoadOptions, Progress, load
from hloscope.subjects import ArtifactSubject

__all__ = ["compare_remat", "survey_flops"]


def survey_flops(
    *, causal: str = "full", progress: Progress | None = None, **options: Unpack[LoadOptions]
) -> Report:
    """Count every one of hloscope's architectures, in one table.

    Args:
        causal: As for :func:`flops`.
        progress: As for :func:`load`; each architecture begins with a note.
        **options: As for :func:`load`, without an architecture.

    Returns:
        A report with one row for each; its ``failures`` name those that failed.

    Raises:
        HloscopeError: The target cannot be compiled for, or an option is wrong.
    """
    from hloscope.answers.flop_answers import Answers, find_answers
    from hloscope.answers.flop_survey import survey_flops as survey
    from hloscope.answers.flop_view import FlopView
    from hloscope.capture.request import CaptureRequest, Source, SourceKind
    from hloscope.models import registry

    view = FlopView.of(by=None, depth=1, top=None, causal=causal, everything=False)
    target, preset = options.get("target") or "cpu", options.get("preset") or "small"
    # What is wrong for all of them is no row of each.
    request = CaptureRequest(Source(SourceKind.ARCH, ""), target, mesh=options.get("mesh") or {})
    request.parsed_target()

    def answer(name: str) -> Answers:
        if progress is not None:
            progress(name, None, name)
        started = time.perf_counter()
        chosen: LoadOptions = {**options, "arch": name}
        subject = load(None, progress=progress, **chosen)
        found = find_answers(open_session(subject, progress), view.causal)
        if progress is not None:
            progress(name, time.perf_counter() - started)
        return found

    return survey(registry.names(), answer, {"target": target, "preset": preset})


def compare_remat(
    policies: Sequence[str],
    *,
    chip: str | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Compile an architecture with each policy, and name the cheapest that fits the chip.

    Args:
        policies: Values of the architecture's ``remat`` option.
        chip: Name of the chip that it should fit; by default the target's.
        progress: As for :func:`load`; each policy begins with a note.
        **options: As for :func:`load`; ``arch`` is needed.

    Raises:
        UsageError: No architecture is named, or it has no such option.
        TargetError: There is no such chip.
        HloscopeError: The target cannot be compiled for.
    """
    from hloscope.answers.remat_ladder import compare_policies
    from hloscope.answers.roofline import named_chip
    from hloscope.capture.request import CaptureRequest, Source, SourceKind
    from hloscope.models import registry

    arch = options.get("arch")
    if not arch:
        raise UsageError(
            "policies are compared for an architecture", hint="Give --arch NAME in place of SOURCE."
        )
    target, preset = options.get("target") or "cpu", options.get("preset") or "small"
    spec = registry.get(arch)
    for policy in policies:
        spec.check({"remat": policy})
    request = CaptureRequest(Source(SourceKind.ARCH, arch), target, mesh=options.get("mesh") or {})
    known = named_chip(chip) if chip is not None else request.parsed_target().chip

    def opened(policy: str) -> tuple[Session, float | None]:
        if progress is not None:
            progress(f"remat={policy}", None, f"remat={policy}")
        started = time.perf_counter()
        settings = {**(options.get("settings") or {}), "remat": policy}
        chosen: LoadOptions = {**options, "settings": settings}
        subject = load(None, progress=progress, **chosen)
        if progress is not None:
            progress(f"remat={policy}", time.perf_counter() - started)
        timings = subject.artifact.timings if isinstance(subject, ArtifactSubject) else {}
        return open_session(subject, progress), timings.get("compile")

    facts: dict[str, str | Quantity] = {"target": target, "preset": preset}
    return compare_policies(list(policies), opened, facts, known, arch)
