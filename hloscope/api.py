"""The functions of the public API; ``hloscope`` itself loads them on first use."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from hloscope.comparisons import compare_remat, survey_flops
from hloscope.errors import UsageError
from hloscope.kernel_commands import bench, compare_kernels, list_kernels
from hloscope.pipeline.audit import audit as run_audit
from hloscope.pipeline.checks import check as run_check
from hloscope.pipeline.checks import find_check
from hloscope.pipeline.config import Configuration, find_configuration, read_configuration
from hloscope.pipeline.findings import Report
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import Limits
from hloscope.sessions import chip_of, given_chip, open_session
from hloscope.sources import (
    Loadable,
    LoadOptions,
    Progress,
    Subject,
    is_compiled_here,
    list_modules,
    load,
)
from hloscope.trace_commands import given_trace, mismatch_of, profile_of, trace

if TYPE_CHECKING:
    from hloscope.answers.flop_view import Grouping as FlopGrouping
    from hloscope.answers.roofline import Grouping
    from hloscope.drawing.view import View

__all__ = [
    "LoadOptions",
    "Loadable",
    "Progress",
    "Subject",
    "alias",
    "audit",
    "bench",
    "check",
    "collectives",
    "compare_kernels",
    "compare_remat",
    "constants",
    "draw",
    "dtypes",
    "flops",
    "list_kernels",
    "list_modules",
    "load",
    "project_configuration",
    "remat",
    "roofline",
    "survey_flops",
    "trace",
]

Configured = Configuration | str | os.PathLike[str] | None


def audit(
    source: Loadable = None,
    *,
    limits: Limits | None = None,
    config: Configured = None,
    trace: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Run every rule; the report has a verdict for each of the nine classes.

    Args:
        source: As for :func:`load`.
        trace: A profile of the program, as for :func:`trace`: evidence of what only a run
            shows, in steady state where that is known.
        limits: Thresholds of the rules, in place of the configuration's.
        config: A project's configuration, or the TOML file that holds it; by
            default there is none. :func:`project_configuration` looks for one.
        progress: As for :func:`load`; analyses are phases too.
        **options: As for :func:`load`.

    Raises:
        UsageError: The configuration is wrong.
        HloscopeError: As for :func:`load`.
    """
    chosen = _configured(config)
    subject = load(source, progress=progress, **options)
    profile = trace if trace is not None else profile_of(source)
    given, facts = given_trace(profile, subject, progress)
    session = open_session(subject, progress, chosen.limits if limits is None else limits, given)
    report = run_audit(session, subject, config=chosen)
    if facts:
        facts = {**facts, "profile": facts["profile"] + mismatch_of(session, subject)}
    return replace(report, header={**report.header, **facts}) if facts else report


def alias(
    source: Loadable = None,
    *,
    top: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Say of every parameter whether it was donated and which result lives in its buffer.

    Args:
        source: As for :func:`load`.
        top: Rows of each table; 0 for all, by default 30.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        Unavailable: Which argument is which parameter is not known.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.alias import SHOWN, report_aliases

    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress)
    return report_aliases(session, subject, top=SHOWN if top is None else top)


def constants(
    source: Loadable = None,
    *,
    top: int | None = None,
    smallest: int | None = None,
    everything: bool = False,
    config: Configured = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """List the constants of a program: size, contents, name, line, and where they come from.

    Args:
        source: As for :func:`load`.
        top: Rows of each table; 0 for all, by default 30.
        smallest: Bytes from which constants are listed; by default 64 KiB, or
            the configuration's ``constant_bytes`` where that is less.
        everything: Also name the instruction, and what tells each one's origin.
        config: As for :func:`audit`.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        UsageError: The configuration is wrong.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.constants import SHOWN, report_constants

    limits = _configured(config).limits
    if smallest is not None:
        limits = replace(limits, constant_bytes=smallest)
    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress, limits)
    shown = SHOWN if top is None else top
    return report_constants(session, subject, top=shown, everything=everything)


def check(
    name: str,
    source: Loadable = None,
    *,
    config: Configured = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Run one check; the report's ``passed`` says whether it holds.

    Args:
        name: For example ``donation``.
        source: As for :func:`load`.
        config: As for :func:`audit`.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        UsageError: There is no such check, or the configuration is wrong.
        Unavailable: The source does not hold what the check needs.
        HloscopeError: As for :func:`load`.
    """
    wanted = find_check(name)
    chosen = _configured(config)
    subject = load(source, progress=progress, **options)
    return run_check(open_session(subject, progress, chosen.limits), subject, wanted, config=chosen)


def collectives(
    source: Loadable = None,
    *,
    chip: str | None = None,
    top: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """List what devices send each other, along which mesh axes, and what of it is exposed.

    Args:
        source: As for :func:`load`.
        chip: Name of the chip; by default the one that it was compiled for.
        top: How many exchanges; 0 for all, by default 20.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        TargetError: There is no such chip.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.collectives import SHOWN, report_collectives

    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress, given=given_chip(chip_of(subject, chip)))
    return report_collectives(session, subject, top=SHOWN if top is None else top)


def draw(
    source: Loadable = None,
    *,
    output: str | os.PathLike[str],
    view: View | str | None = None,
    around: str | None = None,
    depth: int | None = None,
    hops: int | None = None,
    beside: Loadable = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Draw a program with Graphviz.

    Args:
        source: As for :func:`load`.
        output: The file to write; its ending says whether as ``.svg``, ``.png``
            or ``.dot``.
        view: ``remat``: what one layer keeps for its backward pass and what it
            computes again; ``scope``, the default: the program by the names in
            its code.
        around: Name of an instruction, to draw its neighbourhood instead.
        depth: Parts of a scope that tell one box from another, by default 2.
        hops: How far around the instruction to go, by default 2.
        beside: For ``remat``: the same step without rematerialization. Of an
            architecture that has the choice it is compiled as well.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Returns:
        What was drawn, and how much of the program.

    Raises:
        UsageError: The view, the instruction or the file's ending is none that
            there is, the file cannot be written, or two arguments exclude each
            other.
        RenderError: No Graphviz is here, and the file is no ``.dot``.
        Unavailable: The program has no backward pass for ``remat`` to show.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.drawing import report_drawing
    from hloscope.drawing.render import check_output
    from hloscope.drawing.view import DrawingView, View, remat_settings

    wanted = DrawingView.of(
        view=view, around=around, depth=depth, hops=hops, beside=beside is not None
    )
    renderer = check_output(output)
    arch, settings = options.get("arch"), options.get("settings") or {}
    plain: LoadOptions | None = None
    if wanted.view is View.REMAT and arch:
        from hloscope.models import registry

        names = [option.name for option in registry.get(arch).options]
        chosen, without = remat_settings(names, settings)
        options["settings"] = chosen
        if without is not None and beside is None:
            plain = {**options, "settings": without}
    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress)
    other: Subject | None = None
    if plain is not None:
        other = load(None, progress=progress, **plain)
    elif beside is not None:
        same: LoadOptions = {}
        if is_compiled_here(beside):
            same = {**options, "arch": None, "preset": None, "settings": {}, "module": None}
        other = load(beside, progress=progress, **same)
    second = (open_session(other, progress), other) if other is not None else None
    return report_drawing((session, subject), wanted, output, beside=second, renderer=renderer)


def dtypes(
    source: Loadable = None,
    *,
    top: int | None = None,
    config: Configured = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Say in which types a program multiplies, adds up, converts and exchanges.

    Args:
        source: As for :func:`load`.
        top: Rows of each table; 0 for all, by default 8.
        config: As for :func:`audit`.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        UsageError: The configuration is wrong.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.dtypes import SHOWN, report_dtypes

    chosen = _configured(config)
    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress, chosen.limits)
    return report_dtypes(session, subject, top=SHOWN if top is None else top, config=chosen)


def project_configuration(file: str | os.PathLike[str] | None = None) -> Configuration:
    """The configuration of a file, or of the nearest ``pyproject.toml`` that has one.

    Args:
        file: A TOML file; else the folders from the current one up are searched
            for a ``pyproject.toml`` with a ``[tool.hloscope]`` table.

    Raises:
        UsageError: The file cannot be read, or what it says is wrong.
    """
    load_passes()  # the codes that it names are looked up among the rules
    return find_configuration() if file is None else read_configuration(file)


def flops(
    source: Loadable = None,
    *,
    by: FlopGrouping | str | None = None,
    depth: int = 2,
    top: int | None = None,
    causal: str = "full",
    everything: bool = False,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Count the FLOPs of products beside XLA's own cost analysis and the jaxpr's count.

    Args:
        source: As for :func:`load`.
        by: Sum the products by ``scope``, ``op``, ``dtype``, ``kind``,
            ``source`` or ``computation``.
        depth: Parts of a scope that tell one group from another.
        top: List so many of the dearest instructions, or of the groups of ``by``.
        causal: How masked attention counts: ``full`` for every pair of a query
            and a key, ``half`` for those that the mask leaves.
        everything: Give every table, whole, with a column for each fact.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        UsageError: ``by`` or ``causal`` is none of the words that there are.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.flop_view import FlopView
    from hloscope.answers.flops import report_flops

    view = FlopView.of(by=by, depth=depth, top=top, causal=causal, everything=everything)
    subject = load(source, progress=progress, **options)
    return report_flops(open_session(subject, progress), subject, view)


def roofline(
    source: Loadable = None,
    *,
    chip: str | None = None,
    by: Grouping | str = "op",
    top: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Hold a program against a chip's roofline: a floor for its time, and what bounds it.

    Args:
        source: As for :func:`load`.
        chip: Name of the chip; by default the one that it was compiled for.
        by: What the table of operations lists: ``op``, ``scope`` or ``source``.
        top: How many of them; 0 for all, by default the 20 that take longest.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        UsageError: Nothing says which chip, or ``by`` is none of the three.
        TargetError: There is no such chip.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.roofline import SHOWN, Grouping, chip_for, report_roofline
    from hloscope.chips import Chip

    try:
        grouping = Grouping(by)
    except ValueError:
        raise UsageError(
            f"operations cannot be listed by {by!r}",
            hint=f"Choose one of {', '.join(Grouping)}.",
        ) from None
    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress, given={Chip: chip_for(subject, chip)})
    return report_roofline(session, subject, by=grouping, top=SHOWN if top is None else top)


def memory(
    source: Loadable = None,
    *,
    chip: str | None = None,
    at: str = "peak",
    top: int | None = None,
    plot: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Say how much memory a program takes, when most, for what, and whether a chip holds it.

    Args:
        source: As for :func:`load`.
        chip: Name of the chip; by default the one that it was compiled for.
        at: The moment whose buffers are listed: ``peak``, or the name of an
            instruction of the entry computation.
        top: How many buffers; 0 for all, by default the 15 largest.
        plot: Where to write a picture of the memory over the schedule, as SVG.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        UsageError: The entry has no instruction of that name, or the picture
            cannot be written.
        Unavailable: The module is not scheduled.
        TargetError: There is no such chip.
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.memory import SHOWN, report_memory
    from hloscope.answers.memory_plot import plot_memory
    from hloscope.drawing.svg import write_svg
    from hloscope.passes.memory_use import MemoryUse

    subject = load(source, progress=progress, **options)
    known = chip_of(subject, chip)
    session = open_session(subject, progress, given=given_chip(known))
    report = report_memory(session, subject, at=at, top=SHOWN if top is None else top)
    if plot is not None:
        picture = plot_memory(
            session.get(MemoryUse),
            f"{subject.name}: memory of one device",
            chip_bytes=known.memory_bytes if known is not None else None,
        )
        write_svg(plot, picture)
    return report


def remat(
    source: Loadable = None,
    *,
    top: int | None = None,
    beside: Loadable = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Say what a step computes again, whether the compiler kept it so, and what it spares.

    Args:
        source: As for :func:`load`.
        top: How many checkpoints are listed; 0 for all, by default 12.
        beside: The same step without its policy, to compare with; of an
            architecture a value of its option ``remat``, such as ``none``.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        HloscopeError: As for :func:`load`.
    """
    from hloscope.answers.remat import SHOWN, report_remat

    subject = load(source, progress=progress, **options)
    session = open_session(subject, progress)
    without = None
    if beside is not None:
        other = _beside(beside, options, progress)
        name = f"remat={beside}" if options.get("arch") else other.name
        without = open_session(other, progress), name
    rows = SHOWN if top is None else top
    return report_remat(session, subject, top=rows, without=without)


def _beside(beside: Loadable, options: LoadOptions, progress: Progress | None) -> Subject:
    """Another program of the same step: a policy of an architecture, or a source."""
    if options.get("arch"):
        settings = {**(options.get("settings") or {}), "remat": str(beside)}
        same: LoadOptions = {**options, "settings": settings}
        return load(None, progress=progress, **same)
    if is_compiled_here(beside):
        same = {**options, "arch": None, "preset": None, "settings": {}, "module": None}
        return load(beside, progress=progress, **same)
    return load(beside, progress=progress)


def _configured(config: Configured) -> Configuration:
    if config is None:
        return Configuration()
    return config if isinstance(config, Configuration) else project_configuration(config)
