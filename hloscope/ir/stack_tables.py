"""The FileNames, FunctionNames, FileLocations and StackFrames tables of HLO text."""

from __future__ import annotations

import re
from typing import NoReturn, Protocol

from hloscope.ir.metadata import SourceLocation, StackFrame, StackFrames
from hloscope.ir.scan import STRING, unescape

__all__ = ["build_stack_frames", "read_stack_tables"]


class TextReader(Protocol):
    """What the tables need of the text parser."""

    text: str

    def between(self, position: int) -> int:
        """Skip blanks and comments."""

    def fail(self, message: str, position: int, hint: str | None = None) -> NoReturn:
        """Raise an error at an offset."""


_TITLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)[ \t]*(?:\n|\Z)")
_NAME_ROW = re.compile(rf"[ \t]*(\d{{1,18}})[ \t]+({STRING})[ \t]*(?:\n|\Z)")
_FIELD_ROW = re.compile(r"[ \t]*(\d{1,18})[ \t]+\{([^{}\n]*)\}[ \t]*(?:\n|\Z)")
_FIELD = re.compile(r"(?<!\w)(\w++)=(-?\d{1,18})(?!\d)")

Fields = dict[str, int]


def read_stack_tables(reader: TextReader, position: int) -> tuple[StackFrames, int]:
    """Read whichever of the four tables stand at ``position``.

    Most releases print a frame's ``parent_frame_id`` one higher than the
    protobuf has it, with 1 for "no parent"; some print it as it is, with 0. The
    first kind never prints 0, and every table has a frame without a parent, so
    a 0 tells which it is.
    """
    names: dict[str, list[str]] = {"FileNames": [], "FunctionNames": []}
    fields: dict[str, list[Fields]] = {"FileLocations": [], "StackFrames": []}
    while title := _TITLE.match(reader.text, position):
        position = title.end()
        table = title.group(1)
        row = _NAME_ROW if table in names else _FIELD_ROW
        count = 0
        while match := row.match(reader.text, position):
            count += 1
            if int(match.group(1)) != count:
                reader.fail(f"row {match.group(1)} of {table} should be row {count}", position)
            if table in names:
                names[table].append(unescape(match.group(2)[1:-1]))
            else:
                fields[table].append({k: int(v) for k, v in _FIELD.findall(match.group(2))})
            position = match.end()
        position = reader.between(position)
    rows = fields["StackFrames"]
    shift = 0 if any(row.get("parent_frame_id") == 0 for row in rows) else 1
    frames = [row | {"parent_frame_id": row.get("parent_frame_id", shift) - shift} for row in rows]
    return (
        build_stack_frames(
            names["FileNames"], names["FunctionNames"], fields["FileLocations"], frames
        ),
        position,
    )


def build_stack_frames(
    files: list[str], functions: list[str], locations: list[Fields], frames: list[Fields]
) -> StackFrames:
    """Join the four tables; ids are 1-based and a parent of 0 is none.

    An id that points outside its table gives an empty name or line 0, because
    a broken side table must not cost the reader the program.
    """

    def name(table: list[str], index: int) -> str:
        return table[index - 1] if 0 < index <= len(table) else ""

    places = [
        SourceLocation(
            name(files, row.get("file_name_id", 0)),
            row.get("line", 0),
            name(functions, row.get("function_name_id", 0)),
        )
        for row in locations
    ]
    nowhere = SourceLocation("", 0)
    return StackFrames(
        tuple(
            StackFrame(
                places[row.get("file_location_id", 0) - 1]
                if 0 < row.get("file_location_id", 0) <= len(places)
                else nowhere,
                row.get("parent_frame_id", 0),
            )
            for row in frames
        )
    )
