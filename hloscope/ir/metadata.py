"""Where an instruction comes from: op_name, source line, stack frames."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hloscope.ir.scan import unescape

__all__ = [
    "Metadata",
    "SourceLocation",
    "StackFrame",
    "StackFrames",
    "is_library_file",
    "parse_metadata",
    "users_frame",
]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The ``metadata={...}`` of an instruction.

    Attributes:
        op_name: Scope path. An entry parameter's is the pytree path of its
            argument. An instruction merged from several carries their names
            joined with ``;``.
        op_type: The primitive, in older modules.
        source_file: Set only by modules that inline it (jaxlib before 0.8).
        source_line: 1-based, 0 when absent.
        stack_frame_id: 1-based index into the module's stack frames, 0 if none.
        other: Further fields as printed, by name.
    """

    op_name: str = ""
    op_type: str = ""
    source_file: str = ""
    source_line: int = 0
    stack_frame_id: int = 0
    other: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A place in Python: file, 1-based line, function."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_LIBRARY = re.compile(
    r"^(?:.*[/\\])?(?:(?:site|dist)-packages|python3\.\d+|<frozen [^>]*>)(?:[/\\]|$)"
)


@functools.lru_cache(maxsize=4096)
def is_library_file(file: str) -> bool:
    """Whether a file was installed with a package or with Python, by the folder it lies in."""
    return _LIBRARY.match(file) is not None


def users_frame(stack: Iterable[SourceLocation]) -> SourceLocation | None:
    """The innermost frame outside of libraries; without one, the innermost of all.

    A layer's product happens in the library that has the layer, and nobody can
    change that line; the line that calls the layer is the one to look at.

    Args:
        stack: Frames, innermost first.

    Returns:
        The frame; a library's file is named from its package on.
    """
    innermost = None
    for frame in stack:
        if not is_library_file(frame.file):
            return frame
        innermost = innermost or frame
    if innermost is None:
        return None
    return replace(innermost, file=_LIBRARY.sub("", innermost.file))


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One frame; ``parent`` is the 1-based number of its caller, 0 for none."""

    location: SourceLocation
    parent: int


@dataclass(frozen=True, slots=True)
class StackFrames:
    """The module's stack frames; frame ``n`` is ``frames[n - 1]``."""

    frames: tuple[StackFrame, ...] = ()

    def walk(self, frame_id: int) -> Iterator[SourceLocation]:
        """Locations from the innermost frame outwards.

        A parent is always an earlier frame in what XLA writes; a broken table
        in which it is not ends the walk instead of looping.
        """
        while 0 < frame_id <= len(self.frames):
            frame = self.frames[frame_id - 1]
            yield frame.location
            if frame.parent >= frame_id:
                return
            frame_id = frame.parent


_FIELD = re.compile(r'(?<!\w)(\w++)=(?:"((?:[^"\\]|\\.)*+)"|(\{[^{}]*\}|[^\s,{}"]+))', re.DOTALL)


def parse_metadata(text: str) -> Metadata:
    """Read the text between the braces of ``metadata={...}``."""
    known: dict[str, str] = {}
    for key, quoted, bare in _FIELD.findall(text):
        known[key] = unescape(quoted) if quoted else bare
    return Metadata(
        op_name=known.pop("op_name", ""),
        op_type=known.pop("op_type", ""),
        source_file=known.pop("source_file", ""),
        source_line=_integer(known.pop("source_line", "0")),
        stack_frame_id=_integer(known.pop("stack_frame_id", "0")),
        other=tuple(known.items()),
    )


def _integer(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else 0
