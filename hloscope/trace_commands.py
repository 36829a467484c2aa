"""What devices really did: ``hloscope trace``, and a profile as evidence for an audit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hloscope.errors import UsageError
from hloscope.pipeline.findings import Report
from hloscope.pipeline.session import Session
from hloscope.sessions import join_of
from hloscope.sources import Progress, Subject, may_be_profile
from hloscope.subjects import ModuleSubject

__all__ = ["given_trace", "mismatch_of", "profile_of", "trace"]


def trace(
    source: str | os.PathLike[str],
    *,
    run: str | None = None,
    by: str = "category",
    window: str = "auto",
    device: str | None = None,
    steps: bool = False,
    top: int | None = None,
    plot: str | os.PathLike[str] | None = None,
    against: str | os.PathLike[str] | None = None,
    fail_slower: float | None = None,
    chip: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Say what devices really did, from a profile.

    Args:
        source: What ``jax.profiler.trace`` wrote: its folder, or one file of it.
        run: Which run, where the folder holds several; the newest if left out.
        by: What to list time by: category, kernel, family, op, scope, source, module or stream.
        window: What counts: ``all``, ``steady``, a step (``7``), steps (``3-9``), or
            ``auto``, which is steady state where that is known and all where it is not.
        device: Only the device of this name (``GPU 3``, or ``3``).
        steps: List each step instead.
        top: Rows of each table; 0 for all, by default 20.
        plot: Where to write a picture of the window over time, as SVG.
        against: A later run of the same step; the report then says what changed from
            ``source`` to it, by category, family of kernels and operation.
        fail_slower: With ``against``: the report does not pass where its median step is
            slower by more than this share (0.05 is 5%), and by more than steps vary.
        chip: What ran it, one of ``hloscope targets``; as the recording says if left out.
        progress: As for :func:`load`.

    Raises:
        UsageError: There is no such run, list or window, the picture cannot be written, or
            ``against`` does not go with the rest.
        TargetError: There is no such chip.
        InputError: Nothing was recorded there, or nothing of it is understood.
    """
    from hloscope.answers.roofline import named_chip
    from hloscope.answers.trace import SHOWN, report_trace
    from hloscope.answers.trace_against import report_against
    from hloscope.answers.trace_plot import COLUMNS, plot_trace
    from hloscope.drawing.svg import check_svg, write_svg
    from hloscope.traces.reading import read_trace
    from hloscope.traces.tallies import BY
    from hloscope.traces.windows import WindowChoice

    if by not in BY:
        raise UsageError(
            f"time is not listed by {by!r}",
            place=f"--by {by}",
            hint=f"Choose one of: {', '.join(BY)}.",
        )
    choice = WindowChoice.parse(window)
    ran_on = named_chip(chip) if chip is not None else None
    shown = SHOWN if top is None else top
    if against is not None:
        if plot is not None or steps or by != "category":
            raise UsageError(
                "two runs are compared by category, family and op, and not drawn",
                place="--against",
                hint="Leave out --plot, --steps and --by, or look at each run by itself.",
            )
        before = read_trace(Path(source), run, choice, progress, compared=True)
        after = read_trace(Path(against), None, choice, progress, compared=True)
        if device is not None:
            before, after = before.only(device), after.only(device)
        return report_against(before, after, top=shown, fail_slower=fail_slower)
    if fail_slower is not None:
        raise UsageError(
            "a step is slower than another run's",
            place="--fail-slower",
            hint="Give the other run: --against PROFILE.",
        )
    if plot is not None:
        check_svg(plot)
    columns = COLUMNS if plot is not None else 0
    found = read_trace(Path(source), run, choice, progress, columns)
    if device is not None:
        found = found.only(device)
    if plot is not None:
        write_svg(plot, plot_trace(found))
    return report_trace(found, by=by, steps=steps, top=shown, join=join_of(found, ran_on))


def profile_of(source: object) -> str | None:
    """A source of a program that is a profile: its program is read from there."""
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    if not may_be_profile(path):
        return None
    from hloscope.profiles import is_profile

    return path if is_profile(path) else None


def given_trace(
    source: str | os.PathLike[str] | None, subject: Subject, progress: Progress | None
) -> tuple[Mapping[type, object], Mapping[str, str]]:
    """A profile as an input of a session, and what the head of a report says of it.

    A program that comes without its chip is held against the one that the profile names.
    """
    if source is None:
        return {}, {}
    from hloscope.answers.trace import in_short
    from hloscope.chips import CHIPS, Chip, ChipKind
    from hloscope.passes.traced_chip import chip_of_device
    from hloscope.traces.reading import read_trace
    from hloscope.traces.summary import Trace

    found = read_trace(Path(source), progress=progress)
    given: dict[type, object] = {Trace: found}
    facts = {"profile": in_short(found)}
    ran_on = chip_of_device(found.devices[0])
    known = ran_on.chip in CHIPS.values() and ran_on.chip.kind is not ChipKind.CPU
    if known and isinstance(subject, ModuleSubject):
        given[Chip] = ran_on.chip
        facts["chip"] = f"{ran_on.chip.title} ({ran_on.how})"
    return given, facts


def mismatch_of(session: Session, subject: Subject) -> str:
    """What the head of a report says where the profile is not of the program; else nothing."""
    from hloscope.passes.traced_match import TracedMatch

    found = session.find(TracedMatch)
    text = found.mismatch(subject.module) if found is not None else ""
    return f"; {text}" if text else ""
