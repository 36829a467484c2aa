"""A user's traceback without the frames of hloscope and of JAX's inside."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import jax
import jaxlib

__all__ = ["user_traceback"]

_HIDDEN = tuple(
    str(Path(folder).resolve()) + os.sep
    for folder in (
        Path(__file__).parent,
        Path(jax.__file__).parent,
        Path(jaxlib.__file__).parent,
    )
)


def user_traceback(error: BaseException) -> str:
    """Format ``error`` and what led to it, keeping the user's frames alone."""
    formatted = traceback.TracebackException.from_exception(error, compact=True)
    seen: set[int] = set()
    pending: list[traceback.TracebackException | None] = [formatted]
    while pending:
        item = pending.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        kept = [frame for frame in item.stack if not _is_hidden(frame.filename)]
        item.stack = traceback.StackSummary.from_list(kept)
        pending.extend((item.__cause__, item.__context__))
        pending.extend(item.exceptions or ())
    text = "".join(formatted.format()).rstrip()
    # With no frame left the heading would promise what does not follow.
    heading = "Traceback (most recent call last):\n"
    if text.startswith(heading) and not text[len(heading) :].startswith(" "):
        text = text[len(heading) :]
    return text


def _is_hidden(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    return str(Path(filename).resolve()).startswith(_HIDDEN)
