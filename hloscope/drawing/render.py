"""An image of DOT text, by the system's Graphviz or by graphviz-pure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from hloscope.errors import HloscopeError, UsageError

__all__ = [
    "FORMATS",
    "RenderError",
    "Renderer",
    "check_output",
    "find_renderer",
    "format_of",
    "render",
    "write_image",
]

FORMATS = ("dot", "png", "svg")
"""What a picture's file may end on."""

_SECONDS = 300
_PNG_DPI = 144  # twice the size of an SVG's pixels, for screens of today


class RenderError(HloscopeError):
    """An image that Graphviz could not make, or no Graphviz to make it."""


@dataclass(frozen=True, slots=True)
class Renderer:
    """A program that takes ``dot``'s arguments.

    Attributes:
        path: Of the executable.
        name: ``dot`` or ``graphviz-pure``.
    """

    path: str
    name: str


def format_of(path: str | os.PathLike[str]) -> str:
    """What a file's ending asks for: one of :data:`FORMATS`.

    Raises:
        UsageError: It ends on something else.
    """
    ending = Path(path).suffix.lstrip(".").lower()
    ending = "dot" if ending == "gv" else ending
    if ending not in FORMATS:
        raise UsageError(
            f"pictures are written as {', '.join(f'.{each}' for each in FORMATS)}",
            place=os.fspath(path),
            hint="Give a file that ends on one of them.",
        )
    return ending


def find_renderer() -> Renderer:
    """The system's ``dot``, else ``graphviz-pure`` beside this Python or on the path.

    Raises:
        RenderError: There is neither.
    """
    dot = shutil.which("dot")
    if dot is not None:
        return Renderer(dot, "dot")
    # An environment that is not activated has its commands off the path.
    beside = os.pathsep.join((sysconfig.get_path("scripts"), os.path.dirname(sys.executable)))
    pure = shutil.which("graphviz-pure", path=beside) or shutil.which("graphviz-pure")
    if pure is not None:
        return Renderer(pure, "graphviz-pure")
    raise RenderError(
        "no Graphviz is here to draw with",
        hint="Install one: pip install graphviz-pure, or your system's graphviz package. "
        "A file that ends on .dot needs none.",
    )


def check_output(path: str | os.PathLike[str]) -> Renderer | None:
    """What will draw a file; asked before anything is compiled for it.

    Returns:
        ``None`` for DOT text, which needs no renderer.

    Raises:
        UsageError: The file ends on no format, or its folder is not there.
        RenderError: Nothing here can draw that format.
    """
    image_format = format_of(path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise UsageError(
            "the picture cannot be written: there is no such folder",
            place=os.fspath(path),
            hint="Make the folder first, or give a file in one that exists.",
        )
    return None if image_format == "dot" else find_renderer()


def write_image(path: str | os.PathLike[str], dot: str, renderer: Renderer | None = None) -> int:
    """Write DOT text, or the image that it describes, as the file's ending asks.

    Returns:
        Bytes written.

    Raises:
        UsageError: The file cannot be written, or ends on no format.
        RenderError: As for :func:`render`.
    """
    image = render(dot, format_of(path), renderer)
    try:
        with open(path, "wb") as file:
            file.write(image)
    except OSError as error:
        raise UsageError(
            f"the picture cannot be written: {error.strerror}",
            place=os.fspath(path),
            hint="Give a file in a folder that exists and can be written to.",
        ) from None
    return len(image)


def render(dot: str, image_format: str, renderer: Renderer | None = None) -> bytes:
    """The image of DOT text.

    Args:
        dot: The text.
        image_format: ``svg`` or ``png``; ``dot`` gives the text itself.
        renderer: What draws it; by default :func:`find_renderer`'s.

    Raises:
        RenderError: There is no renderer, or it failed.
    """
    if image_format == "dot":
        return dot.encode("utf-8")
    with_ = renderer or find_renderer()
    command = [with_.path, f"-T{image_format}"]
    if image_format == "png":
        command.append(f"-Gdpi={_PNG_DPI}")
    try:
        done = subprocess.run(
            command, input=dot.encode("utf-8"), capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise RenderError(
            f"{with_.name} did not finish within {_SECONDS} s",
            hint="Draw less: a smaller --depth or --hops, or write .dot and render that.",
        ) from None
    except OSError as error:
        raise RenderError(
            f"{with_.name} cannot be run: {error.strerror}",
            place=with_.path,
            hint="Install another Graphviz: pip install graphviz-pure. A .dot file needs none.",
        ) from None
    if done.returncode or not done.stdout:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise RenderError(
            f"{with_.name} failed with exit code {done.returncode}",
            place=with_.path,
            detail="\n".join(said.splitlines()[-5:]) or None,
            hint="Write a .dot file and report it with the message.",
        )
    return done.stdout
