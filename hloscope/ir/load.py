"""From a path, a folder or stdin to modules."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO

from hloscope.errors import InputError, UsageError
from hloscope.ir import sniff
from hloscope.ir.dump import find_dump
from hloscope.ir.module import Module
from hloscope.ir.proto.reader import read_proto, read_text_proto
from hloscope.ir.text import parse_modules
from hloscope.ir.verify import verify

__all__ = [
    "LoadedModule",
    "list_dump",
    "load_module",
    "load_modules",
    "named",
    "the_one",
]


_NUMBER = re.compile(r"(module_\d+)\.")


class LoadedModule:
    """A module that was found, and is read when it is asked for.

    Attributes:
        name: The module's name.
        label: What tells it from others of the same name: ``module_0004.jit_step``
            in a dump, ``main#2`` in a file of several, else the name.
        origin: Name of the file it comes from.
        stage: ``after optimizations``, ``before optimizations``, or empty
            where nothing says.
        size: Bytes of that file.
        read_lowered: Reads the same module before optimization; ``None`` where
            the source does not hold it.
    """

    def __init__(
        self,
        name: str,
        label: str,
        origin: str,
        stage: str,
        size: int,
        read: Callable[[], Module],
        read_lowered: Callable[[], Module] | None = None,
    ) -> None:
        self.name = name
        self.label = label
        self.origin = origin
        self.stage = stage
        self.size = size
        self.read_lowered = read_lowered
        self._read = read
        self._module: Module | None = None

    def __repr__(self) -> str:
        return f"<LoadedModule {self.label} from {self.origin}>"

    @property
    def module(self) -> Module:
        """The module, read and verified on first use.

        Raises:
            InputError: The file cannot be read or holds no sound module.
        """
        if self._module is None:
            module = self._read()
            verify(module)
            self._module = module
        return self._module

    def answers_to(self, name: str) -> bool:
        """Whether ``name`` names this module: by name, label, number or file."""
        numbered = _NUMBER.match(self.label)
        number = numbered.group(1) if numbered else self.label
        return name in (self.name, self.label, self.origin, number)


def load_modules(
    source: str, *, name: str | None = None, stdin: BinaryIO | None = None
) -> list[LoadedModule]:
    """Find every module of a source.

    Args:
        source: A file (HLO text or protobuf, either maybe gzipped), a folder
            that ``--xla_dump_to`` wrote, or ``-`` for stdin.
        name: Only modules of this name, numbered name, number or file.
        stdin: What ``-`` reads; the process's own by default.

    Raises:
        InputError: The source is missing, cannot be read, or is no HLO.
        UsageError: No module answers to ``name``.
    """
    if source == "-":
        modules = _from_bytes(_read_stdin(stdin), "<stdin>")
    elif os.path.isdir(source):
        modules = list_dump(source)
    else:
        path = Path(source)
        modules = _from_bytes(_read_file(path), source, path.name)
    return modules if name is None else named(modules, name, source)


def named(modules: Sequence[LoadedModule], name: str, source: str) -> list[LoadedModule]:
    """Those of a source that answer to a name.

    Raises:
        UsageError: None does.
    """
    found = [one for one in modules if one.answers_to(name)]
    if not found:
        raise _no_such_module(name, modules, source)
    return found


def load_module(
    source: str, *, name: str | None = None, stdin: BinaryIO | None = None
) -> LoadedModule:
    """Find the one module of a source, or the one of a name.

    Args:
        source: As for :func:`load_modules`.
        name: As for :func:`load_modules`.
        stdin: As for :func:`load_modules`.

    Raises:
        InputError: The source is missing, cannot be read, or is no HLO.
        UsageError: There are several and no name, or not exactly one answers
            to the name; the message lists them.
    """
    return the_one(load_modules(source, name=name, stdin=stdin), source, name)


def the_one(modules: Sequence[LoadedModule], source: str, name: str | None) -> LoadedModule:
    """The one module that is left of a source.

    Raises:
        UsageError: Several are; the message lists them.
    """
    if len(modules) == 1:
        return modules[0]
    called = f" called {name!r}" if name is not None else ""
    raise UsageError(
        f"holds {len(modules)} modules{called}",
        place=_shown(source),
        detail=_listing(modules),
        hint=f"Choose one: --module {modules[0].label}",
    )


def list_dump(directory: str) -> list[LoadedModule]:
    """The modules of a folder, none of them read yet.

    Raises:
        InputError: The folder cannot be read or holds no HLO.
    """
    folder = Path(directory)
    try:
        rows = find_dump(folder)
    except OSError as error:
        raise _unreadable(directory, error) from None
    if not rows:
        raise InputError(
            f"is a folder with no HLO dump{_inside(folder)}",
            place=directory,
            hint="Dump into it: XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text', "
            "or name a file.",
        )
    return [
        LoadedModule(
            row.name,
            row.label,
            row.path.name,
            row.stage,
            row.size,
            _reader_of(row.path, row.name),
            _reader_of(row.before, row.name) if row.before is not None else None,
        )
        for row in rows
    ]


def _reader_of(path: Path, name: str) -> Callable[[], Module]:
    def read() -> Module:
        modules = _parse(_read_file(path), str(path))
        named = [module for module in modules if module.name == name] or modules
        if len(named) > 1:
            names = ", ".join(module.name for module in modules[:8])
            raise UsageError(
                f"holds {len(modules)} modules ({names})",
                place=str(path),
                hint="Name this file itself, and one of them with --module NAME.",
            )
        return named[0]

    return read


def _from_bytes(data: bytes, file: str, origin: str | None = None) -> list[LoadedModule]:
    def given(module: Module) -> Callable[[], Module]:
        return lambda: module

    origin = origin or file
    modules = _parse(data, file)
    return [
        LoadedModule(module.name, label, origin, _stage(origin), len(data), given(module))
        for module, label in zip(modules, _labels(modules), strict=True)
    ]


def _labels(modules: Sequence[Module]) -> list[str]:
    """The names, numbered where several modules of one file share theirs."""
    counts = Counter(module.name for module in modules)
    seen: Counter[str] = Counter()
    labels = []
    for module in modules:
        seen[module.name] += 1
        numbered = f"{module.name}#{seen[module.name]}"
        labels.append(numbered if counts[module.name] > 1 else module.name)
    return labels


def _stage(origin: str) -> str:
    match = re.search(r"(before|after)_optimizations\.", origin)
    return f"{match.group(1)} optimizations" if match else ""


# -- bytes to modules ----------------------------------------------------------


_TEXT_PROTO = re.compile(
    r"(?:\s|(?://|\#)[^\n]*)*"
    r"(?:(?:name|entry_computation_name)\s*:\s*[\"']|(?:id|entry_computation_id)\s*:\s*\d"
    r"|(?:hlo_module|computations|host_program_shape)\s*:?\s*\{\s*\w+\s*[:{])"
)


def _parse(data: bytes, file: str) -> list[Module]:
    """Every module in a file's bytes.

    Raises:
        InputError: It is something else, or malformed.
    """
    data = sniff.decompressed(data, file=file)
    if not data or data.isspace():
        raise InputError(
            "is empty" if not data else "holds nothing but blanks",
            place=file,
            hint="Give optimized HLO: compiled.as_text(), or a file that --xla_dump_to wrote.",
        )
    if (content := sniff.foreign(data)) is not None:
        raise InputError(content.what, place=file, hint=content.hint)
    text = sniff.text_of(data, file=file)
    if text is None:
        try:
            return [read_proto(data, file=file)]
        except InputError:
            if (content := sniff.binary(data)) is None:
                raise
            raise InputError(content.what, place=file, hint=content.hint) from None
    if _TEXT_PROTO.match(text):
        return read_text_proto(text, file=file)
    return parse_modules(text, file=file)


# -- reading bytes -------------------------------------------------------------


def _read_stdin(stdin: BinaryIO | None) -> bytes:
    stream = stdin if stdin is not None else sys.stdin.buffer
    if stream.isatty():
        raise InputError(
            "nothing is piped in", place="<stdin>", hint="Pipe HLO: hloscope audit - < step.hlo"
        )
    return _read_bounded(stream, "<stdin>")


def _read_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        InputError: It is missing, cannot be read, or is too large.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory")
        if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
            raise InputError(
                "is a device or a socket, not a file", place=str(path), hint="Name a file."
            )
        with path.open("rb") as stream:
            return _read_bounded(stream, str(path))
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(str(path), error) from None


def _read_bounded(stream: BinaryIO, file: str) -> bytes:
    parts = []
    size = 0
    while part := stream.read(1 << 24):
        parts.append(part)
        size += len(part)
        if size > sniff.MAX_BYTES:
            raise InputError(
                f"is larger than {sniff.MAX_BYTES} bytes",
                place=file,
                hint="That is more than any HLO module; is it the right file?",
            )
    return b"".join(parts)


# -- messages ------------------------------------------------------------------


def _missing(path: Path) -> InputError:
    folder = path.parent
    while not os.path.isdir(folder) and folder != folder.parent:
        folder = folder.parent
    if folder == path.parent:
        try:
            names = [entry.name for entry in folder.iterdir()]
        except OSError:
            names = []
        near = get_close_matches(path.name, names, n=3, cutoff=0.5)
        where = "the current folder" if str(folder) == "." else folder
        hint = f"Did you mean {', '.join(near)}?" if near else f"Look into {where}."
    else:
        hint = f"There is no folder {path.parent}; {folder} exists."
    return InputError("there is no such file", place=str(path), hint=hint)


def _unreadable(place: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(
        f"cannot be read: {reason[:1].lower()}{reason[1:]}",
        place=place,
        hint="Check its permissions: ls -l.",
    )


def _inside(folder: Path) -> str:
    """What a folder holds instead, to tell a wrong folder from an empty one."""
    names = sorted(entry.name for entry in folder.iterdir())
    if not names:
        return ": it is empty"
    shown = ", ".join(names[:3])
    return f": it holds {shown}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _no_such_module(name: str, modules: Sequence[LoadedModule], source: str) -> UsageError:
    known = list(dict.fromkeys(n for one in modules for n in (one.name, one.label)))
    near = get_close_matches(name, known, n=5) or known[:5]
    return UsageError(
        f"there is no module {name!r}",
        place=_shown(source),
        detail=_listing(modules),
        hint=f"Nearest: {', '.join(near)}",
    )


def _shown(source: str) -> str:
    return "<stdin>" if source == "-" else source


def _listing(modules: Sequence[LoadedModule], limit: int = 20) -> str:
    shown = modules[:limit]
    width = max(len(one.label) for one in shown)
    lines = [f"    {one.label:<{width}}  {one.stage or one.origin}" for one in shown]
    if len(modules) > limit:
        lines.append(f"    and {len(modules) - limit} more")
    return "\n".join(lines)
