"""HS507."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.alias_copies import AliasCopies
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.layout_changes import LayoutChange, LayoutChanges
from hloscope.passes.score_arrays import ScoreArrays
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["layout_traffic"]

_ONCE = "each branch taken, loops of unknown length run once"
_PROGRAM = "the program transposes here"
_ORDER = (
    "Write the producer so that it gives the order that the reader takes (one einsum for "
    "product and transpose), or keep the array in that order from the start."
)
_FUSE = (
    "These are attention's scores (HS501): a fused kernel, which keeps them on the chip, needs no "
    "order of them in memory."
)
_GROUP = "These are copies for a ragged product (HS502): a grouped kernel takes the rows once."
_UNNAMED = "XLA's own for what reads it next, or a transpose whose name the compiler dropped"


@rule("HS507", "layout-traffic", Category.REDUNDANT_WORK)
def layout_traffic(
    changes: LayoutChanges,
    traffic: Traffic,
    copies: AliasCopies | None,
    scores: ScoreArrays | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds passes over memory that only lay an array out another way.

    What it does:
        Takes every launch that is a copy into another layout, a transpose, or a fusion of
        these, reshapes and nothing else. What it reads and writes in device memory is summed
        by source line, loops multiplied out, and listed from ``layout_bytes`` (1 MiB) and
        ``traffic_share`` (1%) of the program's memory traffic on. A transpose inside a
        fusion that also computes costs little and is not counted, nor are copies into the
        same layout, copies that defeat a donation (HS703), those between memories (a TPU's
        prefetch) and what devices exchange.

    Why it costs:
        The array goes through memory once more in each direction, and nothing is
        computed. Products want the summed dimension of each side in a certain place, and a
        library its own order: between two that disagree XLA puts a copy.

    Example:
            q = (x @ wq).reshape(b, t, heads, depth).transpose(0, 2, 1, 3)
            scores = jnp.einsum("bhtd,bhsd->bhts", q, k)

    Use instead:
        Leave the order to one einsum, whose product can write the order that the next one
        reads, and give parameters the order in which they are multiplied:

            q = jnp.einsum("btm,mhd->bhtd", x, wq)        # wq kept as [m, heads, depth]
    """
    total = traffic.total()
    known = {copy.instruction for copy in copies.copies} if copies is not None else set()
    lines: dict[object, list[LayoutChange]] = {}
    for change in changes.rows:
        if change.row.instruction not in known:
            location = change.named.location
            place = (location.file, location.line) if location else change.row.instruction
            lines.setdefault(place, []).append(change)
    for rows in lines.values():
        moved = sum(change.nominal_bytes for change in rows)
        if moved >= limits.layout_bytes and moved >= limits.traffic_share * total > 0:
            yield _finding(rows, moved, moved / total, scores, limits)


def _finding(
    rows: Sequence[LayoutChange],
    moved: int,
    share: float,
    scores: ScoreArrays | None,
    limits: Limits,
) -> Finding:
    largest = max(rows, key=lambda change: change.nominal_bytes)
    exact = all(change.row.times.exact is not None for change in rows)
    basis, model = (Basis.EXACT, None) if exact else (Basis.MODELLED, _ONCE)
    cost = Quantity("bytes moved for a layout", moved, Unit.BYTES, basis, model)
    message = (
        f"{len(rows)} launches lay arrays out another way and do nothing else"
        if len(rows) > 1
        else "a launch lays an array out another way and does nothing else"
    )
    launch = largest.row.instruction
    times = largest.row.times
    repeated = "" if times.exact == 1 else f", {times} times"
    turned = ", transposed" if str(largest.source) == str(largest.result) else ""
    asked = sum(change.transposed for change in rows)
    if asked:
        why = f"the program transposes in {asked} of them" if len(rows) > 1 else _PROGRAM
    else:
        why = _UNNAMED
    return Finding(
        code="HS507",
        name="layout-traffic",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share),
        message=message,
        site=instruction_site(launch, line_of=largest.named),
        evidence=(
            cost,
            Quantity("share of memory traffic", share, Unit.SHARE, basis, model),
            Quantity("launches", len(rows)),
        ),
        cost=cost,
        fix=_fix(rows, scores),
        notes=(
            f"largest: {largest.source} to {largest.result}{turned}, {launch.name}{repeated}",
            why,
        ),
    )


def _fix(rows: Sequence[LayoutChange], scores: ScoreArrays | None) -> str:
    if _of_scores(rows, scores):
        return _FUSE
    return _GROUP if all("ragged_dot" in row.named.op_name for row in rows) else _ORDER


def _of_scores(rows: Sequence[LayoutChange], scores: ScoreArrays | None) -> bool:
    """Whether most of what moves is the scores of attention, in an order that no line asked for."""
    arrays = {array for one in scores.attentions for array in one.arrays} if scores else set()
    moved = sum(row.nominal_bytes for row in rows if row.row.instruction in arrays)
    return 2 * moved > sum(row.nominal_bytes for row in rows)
