"""SVG documents that are written as they stand, without Graphviz."""

from __future__ import annotations

import os

from hloscope.errors import UsageError

__all__ = ["check_svg", "write_svg"]


def check_svg(path: str | os.PathLike[str]) -> None:
    """Ask before anything is read for it whether a picture can be written there.

    Raises:
        UsageError: The file does not end on ``.svg``, or its folder is not there.
    """
    if not os.fspath(path).lower().endswith(".svg"):
        raise UsageError(
            "this picture is written as .svg",
            place=os.fspath(path),
            hint="Give a file that ends on .svg; browsers show it and print it as a PDF.",
        )
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise UsageError(
            "the picture cannot be written: there is no such folder",
            place=os.fspath(path),
            hint="Make the folder first, or give a file in one that exists.",
        )


def write_svg(path: str | os.PathLike[str], document: str) -> None:
    """Write a picture.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(document)
    except OSError as error:
        raise UsageError(
            f"the picture cannot be written: {error.strerror}",
            place=os.fspath(path),
            hint="Give a file in a folder that exists and can be written to.",
        ) from None
