"""The one hierarchy of errors that hloscope raises on purpose.

Each carries what happened, where, and what to do next, so that the command
line can print a message of three short parts and exit with 2, and a library
user can catch one base class.
"""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "HloscopeError",
    "InputError",
    "ParseError",
    "TargetError",
    "Unavailable",
    "UsageError",
]


class HloscopeError(Exception):
    """What went wrong, with its place and the next step.

    Args:
        message: One sentence that says what happened.
        place: Where: a file, ``file:line:column``, a flag, a phase.
        detail: Evidence that may span lines: the offending source line with a
            caret, the last lines of a compiler's stderr, a user's traceback.
        hint: What to try next, as an imperative sentence.
    """

    def __init__(
        self,
        message: str,
        *,
        place: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.place}: {self.message}" if self.place else self.message
        return "\n".join(part for part in (head, self.detail, self.hint) if part)


class InputError(HloscopeError):
    """A file or stream that cannot be read as what it should be."""


class ParseError(InputError):
    """Text that is not HLO from some place on; ``place`` is ``file:line:column``.

    Args:
        message: What was expected or found.
        file: Name of the file, or ``<string>``.
        line: 1-based line number.
        column: 1-based column number.
        source: The text of that line; long lines are cut around the column.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int,
        column: int,
        source: str = "",
        hint: str | None = None,
    ) -> None:
        shown, caret = _window(source, column)
        super().__init__(
            message,
            place=f"{file}:{line}:{column}",
            detail=f"    {shown}\n    {caret}" if source else None,
            hint=hint,
        )
        self.file = file
        self.line = line
        self.column = column


class UsageError(HloscopeError):
    """A request that names something that does not exist or does not fit."""


class TargetError(HloscopeError):
    """A chip that cannot be compiled for here: unknown, or its plug-in is missing."""


class CaptureError(HloscopeError):
    """A step that could not be imported, traced, lowered or compiled.

    Args:
        phase: ``import``, ``trace``, ``lower``, ``compile`` or ``read``.
    """

    def __init__(
        self,
        message: str,
        *,
        phase: str,
        place: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, place=place, detail=detail, hint=hint)
        self.phase = phase


class Unavailable(HloscopeError):
    """An analysis has no input to work on; the reason becomes ``not checked: reason``."""


def _window(source: str, column: int, width: int = 72) -> tuple[str, str]:
    """Cut a long line around ``column`` and draw a caret under it."""
    start = max(0, min(column - 1 - width // 2, len(source) - width))
    shown = source[start : start + width]
    before = "..." if start else ""
    after = "..." if start + width < len(source) else ""
    caret = " " * (len(before) + column - 1 - start) + "^"
    return before + shown.replace("\t", " ") + after, caret
