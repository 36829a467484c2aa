"""HS509."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.chunked_loops import ChunkedLoop, ChunkedLoops
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.heap_block import HeapBlock, needed_memory
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["chunked_product"]

_MOVED = "shared arrays and sums once an iteration, fused as they are"
_HELD = "at most: the iteration's arrays grow as the chunk, none in the place of another"


@rule("HS509", "chunked-product", Category.REDUNDANT_WORK)
def chunked_product(
    chunked: ChunkedLoops,
    traffic: Traffic,
    use: MemoryUse,
    block: HeapBlock | None,
    chip: Chip | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds loops that compute a product in more chunks than the chip's memory asks for.

    What it does:
        Looks for loops of which no product waits for what an earlier iteration computed, as
        where the loss over a vocabulary is scanned over chunks of tokens. What an iteration
        reads of arrays that all share, and of sums that all add to, it would do once if the
        chunks were one. Against that stands the memory that larger chunks take: at most as
        much more of the iteration's arrays; and of what a TPU keeps in its vector memory, the
        traffic that larger arrays would bring. A loop is listed where fewer chunks would fit in
        ``filled_share`` (80%) of the chip's memory, from ``traffic_share`` (1%) of the
        program's memory traffic on. Where the chip's memory is not known it is a note. Loops
        with a loop inside, and chunks that Python spells out, are not found.

    Why it costs:
        Eight chunks read the weights eight times, and the gradient of the weights, which each
        of them adds to, is read and written eight times. Each launches its kernels anew, on
        an eighth of the rows.

    Example:
            def chunk(total, xy):
                return total + cross_entropy(xy[0] @ head, xy[1]), None
            loss, _ = jax.lax.scan(chunk, 0.0, (x.reshape(64, -1, d), y.reshape(64, -1)))

    Use instead:
        As few chunks as fit, or none:

            loss, _ = jax.lax.scan(chunk, 0.0, (x.reshape(2, -1, d), y.reshape(2, -1)))
    """
    total = traffic.total()
    needed = needed_memory(use, block)
    room = None if chip is None or chip.memory_bytes is None else chip.memory_bytes
    lines: dict[object, list[ChunkedLoop]] = {}
    for row in chunked.rows:
        location = row.products[0].instruction.location
        place = (location.file, location.line) if location else row.loop
        lines.setdefault((place, row.chunks), []).append(row)
    for rows in lines.values():
        for fewer in rows[0].divisors():
            more = max(row.extra_memory(fewer) for row in rows)
            if room is not None and needed + more > limits.filled_share * room:
                continue
            moved = sum(row.extra_bytes(fewer) * row.times.nominal for row in rows)
            if moved >= limits.traffic_share * total > 0:
                yield _finding(rows, fewer, moved / total, needed, room, limits)
            break


def _finding(
    rows: Sequence[ChunkedLoop],
    fewer: int,
    share: float,
    needed: int,
    room: int | None,
    limits: Limits,
) -> Finding:
    moved = sum(row.extra_bytes(fewer) * row.times.nominal for row in rows)
    launches = sum(row.launches * (row.chunks - fewer) * row.times.nominal for row in rows)
    more = max(row.extra_memory(fewer) for row in rows)
    products = [product for row in rows for product in row.products]
    cost = Quantity("bytes moved for the chunks", moved, Unit.BYTES, Basis.MODELLED, _MOVED)
    evidence = [
        cost,
        Quantity("share of memory traffic", share, Unit.SHARE, Basis.MODELLED, _MOVED),
        Quantity("launches for the chunks", launches, Unit.COUNT, Basis.MODELLED, _MOVED),
        Quantity("memory that they save", more, Unit.BYTES, Basis.BOUNDED, _HELD),
        Quantity("needed so far", needed, Unit.BYTES, Basis.MODELLED, "buffers that live at once"),
    ]
    if room is not None:
        evidence.append(Quantity("memory of the chip", room, Unit.BYTES))
    notes = [
        f"an iteration of {row.loop.name} reads {units.byte_size(row.reread)} that all share"
        + (
            f" and reads and writes {units.byte_size(row.added)} that all add to"
            if row.added
            else ""
        )
        for row in rows
    ]
    chunks = rows[0].chunks
    instead = "one piece" if fewer == 1 else f"{fewer} chunks"
    fits = "would fit" if room is not None else "would do"
    largest = max(products, key=lambda product: product.nominal)
    return Finding(
        code="HS509",
        name="chunked-product",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share) if room is not None else Severity.NOTE,
        message=f"a loop computes in {chunks} chunks what {fits} in {instead}",
        site=instruction_site(largest.instruction),
        evidence=tuple(evidence),
        cost=cost,
        fix=_fix(instead, fewer, known=room is not None),
        notes=tuple(notes),
    )


def _fix(instead: str, fewer: int, *, known: bool) -> str:
    how = ", without the loop (jax.vmap in place of jax.lax.map)" if fewer == 1 else ""
    fits = "" if known else " if the memory of the chip that it runs on has room"
    return f"Compute it in {instead}{how}{fits}."
