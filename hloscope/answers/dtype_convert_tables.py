"""Tables of ``hloscope dtypes`` on conversions, and on what wide types cost."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hloscope.answers.ranked_table import (
    ONCE,
    Row,
    all_exact,
    counted,
    grouped,
    line_of,
    ranked_table,
)
from hloscope.passes.collective_dtypes import CollectiveDtypes, WideCollective
from hloscope.passes.converts import Convert, Converts
from hloscope.passes.parameter_casts import ParameterCast, ParameterCasts
from hloscope.passes.promotions import Promotion, Promotions
from hloscope.passes.round_trips import RoundTrip, RoundTrips
from hloscope.passes.wide_types import WideLine, WideTypes
from hloscope.pipeline.findings import Column, Quantity, Table, Text, Unit

__all__ = [
    "casts_table",
    "converts_table",
    "promotions_table",
    "round_trips_table",
    "wide_exchanges_table",
    "wide_types_table",
]

_BY = {True: "program", False: "XLA"}


def converts_table(converts: Converts, traffic: int, top: int) -> Table:
    """Conversions of arrays by types and author; ``traffic`` is that of the whole program."""
    arrays = (row for row in converts.rows if row.elements > 1)
    groups = grouped(arrays, lambda row: (row.source, row.result, row.asked_for))

    def row(item: tuple[tuple[str, str, bool], list[Convert]]) -> Row:
        (source, result, asked_for), members = item
        moved, exact = _moved(members), all_exact(members)
        return (
            f"{source} to {result}",
            _BY[asked_for],
            Quantity("converts", len(members)),
            Quantity("alone", sum(member.alone for member in members)),
            counted("bytes", moved, Unit.BYTES, exact=exact),
            counted("share", moved / traffic if traffic else None, Unit.SHARE, exact=exact),
        )

    return ranked_table(
        "converts",
        "Conversions of arrays",
        (
            Column("conversion"),
            Column("by"),
            Column("converts", Unit.COUNT),
            Column("alone", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("share", Unit.SHARE),
        ),
        sorted(groups.items(), key=lambda item: -_moved(item[1])),
        row,
        top=top,
        note="alone: in a launch that does nothing else. bytes: what they read from "
        "and write to device memory themselves; share: of all its traffic.",
    )


def _moved(rows: Iterable[Convert | RoundTrip]) -> int:
    return sum(row.nominal_bytes for row in rows)


def round_trips_table(trips: RoundTrips, top: int) -> Table:
    """Pairs of conversions with nothing in between: the program's by line, then XLA's own."""
    groups = grouped(trips.rows, _pair)

    def row(item: tuple[tuple[bool, str, str], list[RoundTrip]]) -> Row:
        (by_xla, kind, line), members = item
        exact = all_exact(member.back for member in members)
        return (
            kind,
            _BY[not by_xla],
            line or "-",
            Quantity("round trips", len(members)),
            counted("bytes for nothing", _moved(members), Unit.BYTES, exact=exact),
            "rounds" if members[0].loses else "exact",
        )

    note = "bytes: what memory moves beyond what it would without the pair; none in a launch "
    note += "that also computes."
    if any(by_xla for by_xla, _, _ in groups):
        note += " XLA's own pairs stand in for arithmetic that the device lacks in the narrow "
        note += "type; the program did not ask for them."
    return ranked_table(
        "round_trips",
        "Converted and straight back",
        (
            Column("round trip"),
            Column("by"),
            Column("line", text=Text.SOURCE),
            Column("count", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("value"),
        ),
        sorted(groups.items(), key=lambda item: (item[0][0], -_moved(item[1]))),
        row,
        top=top,
        note=note,
    )


def _pair(trip: RoundTrip) -> tuple[bool, str, str]:
    kind = f"{trip.there.source} to {trip.there.result} and back"
    return not trip.asked_for, kind, line_of(trip.back.instruction) if trip.asked_for else ""


def casts_table(casts: ParameterCasts, top: int) -> Table:
    """Arguments that are converted more than once, with what once would move."""

    def row(cast: ParameterCast) -> Row:
        exact = all_exact(cast.converts)
        return (
            cast.parameter.op_name or cast.parameter.name,
            f"{cast.converts[0].source} to {cast.result}",
            counted("times over", cast.times_over, Unit.RATIO, exact=exact),
            counted("bytes", cast.bytes, Unit.BYTES, exact=exact),
            counted("once", cast.bytes_once, Unit.BYTES, exact=exact),
        )

    return ranked_table(
        "parameter_casts",
        "Arguments converted more than once",
        (
            Column("argument", text=Text.PATH),
            Column("conversion"),
            Column("times", Unit.RATIO),
            Column("bytes", Unit.BYTES),
            Column("once", Unit.BYTES),
        ),
        sorted(
            (cast for cast in casts.rows if cast.times_over > 1),
            key=lambda cast: (-cast.wasted_bytes, -cast.bytes),
        ),
        row,
        top=top,
        note="once: what converting it ahead of all uses would move.",
    )


def wide_exchanges_table(dtypes: CollectiveDtypes, top: int) -> Table:
    """Exchanges in a wider type than needed, by line."""
    groups = grouped(dtypes.wide, _exchange)

    def row(item: tuple[tuple[str, str, str], list[WideCollective]]) -> Row:
        key, members = item
        exact = all(one.collective.times.exact is not None for one in members)
        saved = [one.saved_bytes for one in members]
        known = [size for size in saved if size is not None]
        wire = partial(counted, "saved", unit=Unit.BYTES, exact=False)
        return (
            *key,
            counted("runs", sum(one.runs for one in members), exact=exact),
            wire(
                sum(known) if len(known) == len(saved) else None,
                model=f"ring algorithm, {ONCE}",
            ),
        )

    return ranked_table(
        "wide_collectives",
        "Exchanges in a wider type than needed",
        (
            Column("exchange"),
            Column("type"),
            Column("where", text=Text.SOURCE),
            Column("runs", Unit.COUNT),
            Column("saved", Unit.BYTES),
        ),
        sorted(groups.items(), key=lambda item: -sum(one.saved_bytes or 0 for one in item[1])),
        row,
        top=top,
        note="saved: bytes that one device would not send.",
    )


def _exchange(row: WideCollective) -> tuple[str, str, str]:
    instruction = row.collective.instruction
    types = f"{row.wide}, {row.narrow} would do"
    return row.collective.kind.value, types, line_of(instruction) or instruction.name


def wide_types_table(wide: WideTypes, top: int) -> Table:
    """Lines that compute arrays in float64, then those in 64-bit integers."""
    integers = [line for line in wide.int64 if line.largest.shape.num_elements > 1]

    def row(line: WideLine) -> Row:
        return (
            line.dtype,
            "{}:{}".format(*line.location)
            if line.location
            else line_of(line.largest) or line.largest.name,
            Quantity("instructions", len(line.instructions)),
            counted("bytes", line.bytes, Unit.BYTES, exact=line.exact),
            f"{line.enters[0].opcode} {line.enters[0].name}" if line.enters else "handed on",
        )

    note = ""
    if wide.before:
        note = "Read from the module before optimization: the compiler makes pairs of 32 bits."
    elif wide.pairs:
        note = "The compiler made pairs of 32 bits of them; only what enters or leaves is seen."
    return ranked_table(
        "wide_types",
        "Lines that compute in 64 bits",
        (
            Column("type"),
            Column("line", text=Text.SOURCE),
            Column("instrs", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("comes in by"),
        ),
        [*wide.float64, *integers],
        row,
        top=top,
        note=note,
    )


_GUESSED = (
    "Read from the optimized program, since the jaxpr is not known: only numbers are seen, and an "
    "explicit cast on the same line looks alike."
)


def promotions_table(promotions: Promotions, top: int) -> Table:
    """Lines where a wider value widens another one, with what is left of it after XLA."""

    def row(found: Promotion) -> Row:
        exact = all_exact(found.converts)
        return (
            f"{found.source} to {found.result}",
            f"{found.file}:{found.line}" if found.file else "-",
            counted("elements", found.elements, exact=found.exact),
            counted("bytes", found.nominal_bytes, Unit.BYTES, exact=exact)
            if found.converts
            else "-",
            f"{found.partner}, in {found.operation}",
        )

    note = "bytes: what the conversions move through memory themselves; - where XLA left none on "
    note += "the line. A Python number would not widen a float."
    return ranked_table(
        "promotions",
        "Widened where a wider value meets them",
        (
            Column("conversion"),
            Column("line", text=Text.SOURCE),
            Column("elements", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("meets"),
        ),
        promotions.rows,
        row,
        top=top,
        note=note if promotions.from_jaxpr else f"{note} {_GUESSED}",
    )
