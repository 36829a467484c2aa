"""What the public functions look at: finding a program, reading it, or compiling it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from hloscope.errors import UsageError
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Unit
from hloscope.subjects import ArtifactSubject, ModuleSubject

if TYPE_CHECKING:
    from hloscope.capture.request import OptionValue, Source
    from hloscope.ir.load import LoadedModule

__all__ = [
    "LoadOptions",
    "Loadable",
    "Progress",
    "Subject",
    "is_compiled_here",
    "list_modules",
    "load",
    "may_be_profile",
]

Subject = ArtifactSubject | ModuleSubject
Loadable = str | os.PathLike[str] | Subject | None


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
        bad: Antipatterns to build into the architecture.
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
    bad: Sequence[str]
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
            folder that ``--xla_dump_to`` wrote; a profile, for the program in it
            that took most of the time; ``-`` for stdin. What was loaded already is
            given back as it is.
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


def is_compiled_here(source: Loadable) -> bool:
    """Whether a source is a step, which options of the compile apply to."""
    return _step(source, {}) is not None


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
        columns = (Column("module"), Column("stage"), Column("size", Unit.BYTES))
        rows = [
            (one.label, one.stage, Quantity("size", one.size, Unit.BYTES))
            for one in _modules(text, options.get("module"))[0]
        ]
    table = Table("modules", "", columns, tuple(rows))
    return Report("list", text or "", {}, tables=(table,))


_COMPILE_OPTIONS = frozenset(
    ("arch", "preset", "settings", "bad", "target", "mesh", "xla", "timeout", "install")
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
    _refuse(options, frozenset(("preset", "settings", "bad")), f"{source}: only --arch has them")
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
        bad=tuple(options.get("bad") or ()),
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
    with _phase("read", progress):
        modules, profiled = _modules(text, name)
        if name is not None:
            from hloscope.ir.load import the_one

            chosen, choice = the_one(modules, text, name), ""
        elif profiled:
            chosen, choice = modules[0], "most of the time"
        else:
            chosen, choice = _largest(modules), "the largest"
        if choice:
            several = len(modules) > 1
            choice = f"{choice} of {len(modules)}; --list shows all" if several else ""
        module = chosen.module
    facts = {"stage": chosen.stage} if chosen.stage else {}
    return ModuleSubject(
        module,
        "stdin" if text == "-" else text,
        choice=choice,
        facts=facts,
        read_lowered=chosen.read_lowered,
    )


def _modules(text: str, name: str | None) -> tuple[list[LoadedModule], bool]:
    """What a file, a folder or stdin holds, and whether it is a profile."""
    from hloscope.ir.load import load_modules, named

    if may_be_profile(text) and not _holds_dump(text):
        from hloscope.profiles import is_profile, modules_of_profile

        if is_profile(text):
            modules = modules_of_profile(text)
            return (named(modules, name, text) if name is not None else modules), True
    return load_modules(text, name=name), False


def may_be_profile(text: str) -> bool:
    """Whether something may be a profile, told without loading what reads one."""
    return os.path.isdir(text) or (os.path.exists(text) and ".xplane.pb" in text)


def _holds_dump(text: str) -> bool:
    """Whether a folder holds HLO; a profiler may write into the same one."""
    from hloscope.ir.dump import find_dump

    try:
        return os.path.isdir(text) and bool(find_dump(Path(text)))
    except OSError:
        return False


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
