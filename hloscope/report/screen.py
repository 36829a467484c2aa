"""Lines of styled text on a terminal or into a pipe."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

__all__ = ["PIPE_WIDTH", "Screen"]

PIPE_WIDTH = 80
_NARROWEST, _WIDEST = 60, 160

Span = tuple[str, str]  # text and rich style; an empty style is plain


class _Console(Console):
    """Leaves a closed pipe to the caller; rich's own console would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the :class:`BrokenPipeError`."""
        raise BrokenPipeError


class Screen:
    """Writes lines whose spans may carry a style, and wraps none by itself.

    Args:
        stream: Where to write.
        width: Columns to lay out for; by default ``COLUMNS`` where it is set, else
            the terminal's, and 80 where the stream is no terminal.
        color: Whether styles become escape codes; by default only on a
            terminal, unless ``NO_COLOR`` is set or the terminal is dumb.
    """

    def __init__(
        self, stream: TextIO, *, width: int | None = None, color: bool | None = None
    ) -> None:
        terminal = stream.isatty()
        if color is None:
            dumb = os.environ.get("TERM") == "dumb"
            color = terminal and not dumb and not os.environ.get("NO_COLOR")
        if width is None:
            asked = terminal or os.environ.get("COLUMNS", "").isdecimal()
            columns = shutil.get_terminal_size((PIPE_WIDTH, 24)).columns
            width = max(_NARROWEST, min(columns, _WIDEST)) if asked else PIPE_WIDTH
        self.width = width
        self._empty = True
        self._console = _Console(
            file=stream,
            width=width,
            color_system="standard" if color else None,
            force_terminal=color,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def line(self, *spans: Span | str) -> None:
        """One line; control characters in it are shown, not obeyed."""
        text = Text()
        for span in spans:
            content, style = (span, "") if isinstance(span, str) else span
            text.append(_printable(content), style=style)
        text.rstrip()
        self._console.print(text, soft_wrap=True)
        self._empty = False

    def blank(self) -> None:
        """An empty line between two parts; none at the top."""
        if not self._empty:
            self._console.print()

    def hanging(self, head: Sequence[Span], body: str, style: str = "") -> None:
        """A head, then a text that wraps in the columns to the right of it."""
        indent = sum(len(content) for content, _ in head)
        lines: list[str] = []
        for paragraph in body.splitlines() or [""]:
            lines += textwrap.wrap(
                paragraph,
                max(self.width - indent, 20),
                break_long_words=False,
                break_on_hyphens=False,
            ) or [""]
        self.line(*head, (lines[0], style))
        for rest in lines[1:]:
            self.line(" " * indent, (rest, style))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
