"""The functions of the public API; ``hloscope`` itself loads them on first use."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from hloscope.errors import UsageError
from hloscope.pipeline.audit import audit as run_audit
from hloscope.pipeline.checks import check as run_check
from hloscope.pipeline.checks import find_check
from hloscope.pipeline.config import Configuration, find_configuration, read_configuration
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Unit
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.rules import Limits
from hloscope.pipeline.session import Session
from hloscope.subjects import ArtifactSubject, ModuleSubject

if TYPE_CHECKING:
    from hloscope.capture.request import OptionValue, Source
    from hloscope.flop_view import Grouping as FlopGrouping
    from hloscope.ir.load import LoadedModule
    from hloscope.roofline_report import Grouping

__all__ = [
    "LoadOptions",
    "Loadable",
    "Progress",
    "Subject",
    "alias",
    "audit",
    "check",
    "constants",
    "dtypes",
    "flops",
    "list_modules",
    "load",
    "project_configuration",
    "roofline",
    "survey_flops",
]

Subject = ArtifactSubject | ModuleSubject
Loadable = str | os.PathLike[str] | Subject | None
Configured = Configuration | str | os.PathLike[str] | None


class Progress(Protocol):
    """Told of every phase: with ``None`` when it starts, with its seconds when it ends."""

    def __call__(self, phase: str, seconds: float | None, note: str | None = None) -> None:
        """Take news of a phase; ``note`` says more on what it does."""


class LoadOptions(TypedDict, total=False):
    """How a source is found and compiled; every key may be left out.

    Attributes:
        arch: One of hloscope's architectures, in place of a source.
        preset: Size of the architecture.
        settings: Options of the architecture.
        target: What to compile for; ``cpu`` by default.
        mesh: Axis names and sizes over the target's devices, in order.
        xla: XLA's compiler options for this compile.
        timeout: Seconds for tracing and compiling.
        install: Whether a missing plug-in may be installed on the way.
        cache: Whether the cache may be read and written; it is by default.
        module: Which module of a dump that holds several.
    """

    arch: str | None
    preset: str | None
    settings: Mapping[str, str]
    target: str | None
    mesh: Mapping[str, int]
    xla: Mapping[str, OptionValue]
    timeout: float | None
    install: bool
    cache: bool
    module: str | None


def load(
    source: Loadable = None, *, progress: Progress | None = None, **options: Unpack[LoadOptions]
) -> Subject:
    """Read a program, or compile a step into one.

    Args:
        source: ``file.py:attr`` or ``package.module:attr`` for a step; a file
            of HLO (text, protobuf, either gzipped); a ``.hloscope`` file; a
            folder that ``--xla_dump_to`` wrote; ``-`` for stdin. What was
            loaded already is given back as it is.
        progress: Told of every phase, see :class:`Progress`.
        **options: See :class:`LoadOptions`.

    Raises:
        HloscopeError: The source cannot be read, traced or compiled; see the
            subclasses in :mod:`hloscope.errors`.
    """
    if isinstance(source, ArtifactSubject | ModuleSubject):
        _refuse(options, _COMPILE_OPTIONS | _DUMP_OPTIONS, "what is loaded already")
        return source
    step = _step(source, options)
    if step is not None:
        _refuse(options, _DUMP_OPTIONS, "a step, which compiles to one module")
        return _capture(step, options, progress)
    text = os.fspath(source) if source is not None else ""
    _refuse(options, _COMPILE_OPTIONS, f"{text}, which is compiled already")
    if text.endswith(".hloscope"):
        from hloscope.capture.artifact import Artifact

        _refuse(options, _DUMP_OPTIONS, f"{text}, which holds one module")
        return ArtifactSubject(Artifact.load(text))
    return _read(text, options.get("module"), progress)


def audit(
    source: Loadable = None,
    *,
    limits: Limits | None = None,
    config: Configured = None,
    progress: Progress | None = None,
    **options: Unpack[LoadOptions],
) -> Report:
    """Run every rule; the report has a verdict for each of the nine classes.

    Args:
        source: As for :func:`load`.
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
    session = _session(subject, progress, chosen.limits if limits is None else limits)
    return run_audit(session, subject, config=chosen)


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
    from hloscope.alias_report import SHOWN, report_aliases

    subject = load(source, progress=progress, **options)
    session = _session(subject, progress)
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
    from dataclasses import replace

    from hloscope.constants_report import SHOWN, report_constants

    limits = _configured(config).limits
    if smallest is not None:
        limits = replace(limits, constant_bytes=smallest)
    subject = load(source, progress=progress, **options)
    session = _session(subject, progress, limits)
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
    return run_check(_session(subject, progress, chosen.limits), subject, wanted, config=chosen)


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
    from hloscope.dtype_report import SHOWN, report_dtypes

    chosen = _configured(config)
    subject = load(source, progress=progress, **options)
    session = _session(subject, progress, chosen.limits)
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
    from hloscope.flop_report import report_flops
    from hloscope.flop_view import FlopView

    view = FlopView.of(by=by, depth=depth, top=top, causal=causal, everything=everything)
    subject = load(source, progress=progress, **options)
    return report_flops(_session(subject, progress), subject, view)


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
    from hloscope.capture.request import CaptureRequest, Source, SourceKind
    from hloscope.flop_answers import Answers, find_answers
    from hloscope.flop_survey import survey_flops as survey
    from hloscope.flop_view import FlopView
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
        found = find_answers(_session(subject, progress), view.causal)
        if progress is not None:
            progress(name, time.perf_counter() - started)
        return found

    return survey(registry.names(), answer, {"target": target, "preset": preset})


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
    from hloscope.chips import Chip
    from hloscope.roofline_report import SHOWN, Grouping, chip_for, report_roofline

    try:
        grouping = Grouping(by)
    except ValueError:
        raise UsageError(
            f"operations cannot be listed by {by!r}",
            hint=f"Choose one of {', '.join(Grouping)}.",
        ) from None
    subject = load(source, progress=progress, **options)
    session = _session(subject, progress, given={Chip: chip_for(subject, chip)})
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
    from hloscope.chips import Chip
    from hloscope.memory_plot import plot_memory
    from hloscope.memory_report import SHOWN, report_memory
    from hloscope.passes.memory_use import MemoryUse
    from hloscope.roofline_report import chip_for, is_chip_known

    subject = load(source, progress=progress, **options)
    known = chip_for(subject, chip) if chip is not None or is_chip_known(subject) else None
    given: dict[type, object] = {Chip: known} if known is not None else {}
    session = _session(subject, progress, given=given)
    report = report_memory(session, subject, at=at, top=SHOWN if top is None else top)
    if plot is not None:
        picture = plot_memory(
            session.get(MemoryUse),
            f"{subject.name}: memory of one device",
            chip_bytes=known.memory_bytes if known is not None else None,
        )
        try:
            with open(plot, "w", encoding="utf-8") as file:
                file.write(picture)
        except OSError as error:
            raise UsageError(
                f"the picture cannot be written: {error.strerror}",
                place=os.fspath(plot),
                hint="Give a file in a folder that exists and can be written to.",
            ) from None
    return report


def list_modules(
    source: Loadable = None, *, progress: Progress | None = None, **options: Unpack[LoadOptions]
) -> Report:
    """The modules that a source holds, as a table; those of a folder are not read.

    Args:
        source: As for :func:`load`; a step is compiled to its one module.
        progress: As for :func:`load`.
        **options: As for :func:`load`.

    Raises:
        HloscopeError: As for :func:`load`.
    """
    text = None if source is None or isinstance(source, Subject) else os.fspath(source)
    columns: tuple[Column, ...]
    rows: list[tuple[str | Quantity, ...]]
    if text is None or _step(text, options) is not None or text.endswith(".hloscope"):
        subject = load(source, progress=progress, **options)
        size = Quantity("instructions", subject.module.num_instructions)
        columns = (Column("module"), Column("instructions", Unit.COUNT), Column("from"))
        rows = [(subject.module.name, size, subject.name)]
    else:
        from hloscope.ir.load import load_modules

        columns = (Column("module"), Column("stage"), Column("size", Unit.BYTES))
        rows = [
            (one.label, one.stage, Quantity("size", one.size, Unit.BYTES))
            for one in load_modules(text, name=options.get("module"))
        ]
    table = Table("modules", "", columns, tuple(rows))
    return Report("list", text or "", {}, tables=(table,))


_COMPILE_OPTIONS = frozenset(
    ("arch", "preset", "settings", "target", "mesh", "xla", "timeout", "install")
)
_DUMP_OPTIONS = frozenset(("module",))
_FLAGS = {"settings": "set"}


def _refuse(options: LoadOptions, names: frozenset[str], what: str) -> None:
    """An option that would be ignored is an error: the user meant something by it."""
    given = [_FLAGS.get(key, key) for key, value in options.items() if value and key in names]
    if given:
        raise UsageError(
            f"{', '.join(f'--{flag}' for flag in given)} does not apply to {what}",
            hint="Leave it out, or give a step (--arch NAME or file.py:attr) to compile.",
        )


def _step(source: Loadable, options: LoadOptions) -> Source | None:
    """The step to compile, or ``None`` for a file, a folder or stdin.

    Raises:
        UsageError: Neither or both of a source and an architecture were given.
    """
    from hloscope.capture.request import Source, SourceKind, parse_source

    arch = options.get("arch")
    if arch:
        if source is not None:
            raise UsageError(
                f"both SOURCE ({source}) and --arch {arch} are given", hint="Give one of them."
            )
        return Source(SourceKind.ARCH, arch)
    if source is None:
        raise UsageError(
            "nothing to look at",
            hint="Give a SOURCE (file.py:attr, an HLO file, a dump folder, -) or --arch NAME.",
        )
    if isinstance(source, Subject):
        return None
    _refuse(options, frozenset(("preset", "settings")), f"{source}: only --arch has them")
    text = os.fspath(source)
    if text == "-" or (os.path.exists(text) and not text.endswith(".py")):
        return None
    if text.endswith(".py") or ":" in text:
        return parse_source(text)
    return None


def _capture(step: Source, options: LoadOptions, progress: Progress | None) -> ArtifactSubject:
    from hloscope.capture import CaptureRequest, PhaseEvent, capture

    request = CaptureRequest(
        step,
        target=options.get("target") or "cpu",
        preset=options.get("preset") or "small",
        options=options.get("settings") or {},
        mesh=options.get("mesh") or {},
        compiler_options=options.get("xla") or {},
        timeout=options.get("timeout"),
        install=options.get("install", False),
        use_cache=options.get("cache", True),
    )

    def tell(event: PhaseEvent) -> None:
        if progress is not None:
            progress(event.phase, event.seconds, event.note)

    return ArtifactSubject(capture(request, progress=tell))


def _read(text: str, name: str | None, progress: Progress | None) -> ModuleSubject:
    """The module of that name, or the largest one; reads no other of a folder."""
    from hloscope.ir.load import load_module, load_modules

    with _phase("read", progress):
        if name is not None:
            chosen, choice = load_module(text, name=name), ""
        else:
            modules = load_modules(text)
            chosen = _largest(modules)
            choice = f"the largest of {len(modules)}; --list shows all" if len(modules) > 1 else ""
        module = chosen.module
    facts = {"stage": chosen.stage} if chosen.stage else {}
    return ModuleSubject(module, "stdin" if text == "-" else text, choice=choice, facts=facts)


def _largest(modules: Sequence[LoadedModule]) -> LoadedModule:
    """The optimized module with the largest file; in one file, the one with most instructions.

    A program's own step outweighs the many small modules that a run also compiles.
    """
    candidates = [one for one in modules if not one.stage.startswith("before")] or list(modules)
    size = max(one.size for one in candidates)
    largest = [one for one in candidates if one.size == size]
    if len(largest) == 1:
        return largest[0]
    return max(largest, key=lambda one: one.module.num_instructions)


@contextlib.contextmanager
def _phase(name: str, progress: Progress | None) -> Iterator[None]:
    started = time.perf_counter()
    if progress is not None:
        progress(name, None)
    yield
    if progress is not None:
        progress(name, time.perf_counter() - started)


def _configured(config: Configured) -> Configuration:
    if config is None:
        return Configuration()
    return config if isinstance(config, Configuration) else project_configuration(config)


def _session(
    subject: Subject,
    progress: Progress | None,
    limits: Limits | None = None,
    given: Mapping[type, object] | None = None,
) -> Session:
    load_passes()
    everything: dict[type, object] = dict(given or {})
    if limits is not None:
        everything[Limits] = limits
    return Session(subject, given=everything, progress=progress)
