"""Draws a view, writes it to a file, and says what is in it, as a report."""

from __future__ import annotations

import os

from hloscope import units
from hloscope.drawing.around import draw_around
from hloscope.drawing.dot import write_dot
from hloscope.drawing.picture import Picture
from hloscope.drawing.remat import Side, draw_remat
from hloscope.drawing.render import Renderer, write_image
from hloscope.drawing.scope import draw_scopes
from hloscope.drawing.view import DrawingView, View
from hloscope.pipeline.audit import AuditSubject, trust_of
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Unit
from hloscope.pipeline.session import Session

__all__ = ["Drawn", "draw_view", "report_drawing"]

Drawn = tuple[Session, AuditSubject]
"""A program: what gives its analyses, and what names it."""


def report_drawing(
    program: Drawn,
    wanted: DrawingView,
    output: str | os.PathLike[str],
    *,
    beside: Drawn | None = None,
    renderer: Renderer | None = None,
) -> Report:
    """Draw a program into a file.

    Args:
        program: What is drawn.
        wanted: The view.
        output: The file; its ending says the format.
        beside: For ``remat``, the same step compiled without.
        renderer: What draws it; by default whichever Graphviz is found.

    Raises:
        UsageError: There is no such instruction, or the file cannot be written.
        RenderError: Graphviz is missing or failed.
        Unavailable: The program does not have what the view shows.
    """
    session, subject = program
    picture = draw_view(program, wanted, beside=beside)
    size = write_image(output, write_dot(picture), renderer)
    boxes = sum(len(panel.nodes) for panel in picture.panels)
    arrows = sum(len(panel.edges) for panel in picture.panels)
    path = os.fspath(output)
    rows = (
        ("boxes", Quantity("boxes", boxes)),
        ("arrows", Quantity("arrows", arrows)),
        (f"{picture.counted} drawn", Quantity("drawn", picture.drawn)),
        (f"{picture.counted} left out", Quantity("left out", picture.left_out)),
        ("file", Quantity("file", size, Unit.BYTES)),
    )
    facts = {"picture": path, "view": wanted.view.value}
    if renderer is not None:
        facts["drawn by"] = renderer.name
    trust, missing_trust = trust_of(session)
    return Report(
        command="draw",
        subject=subject.name,
        header={**subject.header(), **facts},
        tables=(Table("picture", "In the picture", (Column("what"), Column("value")), rows),),
        summary=(
            f"{path}: {picture.title}, {units.count(boxes)} boxes, {units.count(arrows)} arrows, "
            f"{units.byte_size(size)}"
        ),
        trust=trust,
        notes=(*picture.caption, *([missing_trust] if missing_trust else [])),
    )


def draw_view(program: Drawn, wanted: DrawingView, *, beside: Drawn | None = None) -> Picture:
    """The picture of a view; see :func:`report_drawing`."""
    session, subject = program
    title = _title(subject)
    if wanted.view is View.REMAT:
        second = Side(_title(beside[1]), beside[0]) if beside is not None else None
        return draw_remat(Side(title, session), second)
    if wanted.view is View.SCOPE:
        return draw_scopes(session, title, depth=wanted.depth)
    return draw_around(session, title, wanted.around, hops=wanted.hops)


def _title(subject: AuditSubject) -> str:
    """The user's words; of a file its name, as a path is of this machine."""
    return os.path.basename(subject.name.rstrip("/")) or subject.name
