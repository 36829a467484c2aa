"""A program held against a chip's roofline, as a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from hloscope import units
from hloscope.chips import Chip, ChipKind, chip_of_device_kind, parse_target
from hloscope.errors import Unavailable, UsageError
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.roofline import Bound, Range, Roofline, RooflineRow
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["Grouping", "SHOWN", "chip_for", "is_chip_known", "report_roofline"]

SHOWN = 20
"""Operations that are listed unless asked otherwise."""

_FLOOR = "lower bound"
_ROOFLINE = "roofline"
_ALL_RUN = "every branch taken, unknown loops run once"


class Grouping(StrEnum):
    """What one line of the table of operations stands for."""

    OP = "op"
    SCOPE = "scope"
    SOURCE = "source"


_METHOD = (
    "the floor takes for each operation the larger of its products at the chip's peak, its bytes "
    "at the memory's bandwidth and its exchanges at the links' rate. It is no prediction: a run "
    "takes longer. Elementwise work is held against memory only (docs/roofline.md)."
)
_ESTIMATE = (
    "the compiler's estimate is its own expectation of what it tiled, not a floor: sums of it "
    "leave out every operation that carries none."
)
_NOT_SCHEDULED = (
    "the module is not scheduled, so XLA had not finished with it: what it would still fuse is "
    "counted as read and written one by one, and its floor is no floor of the final program."
)


def chip_for(subject: AuditSubject, name: str | None) -> Chip:
    """The chip to hold a program against: the one that is named, else its target's.

    Args:
        subject: What is looked at.
        name: A chip of ``hloscope targets``, or ``None``.

    Raises:
        TargetError: There is no such chip.
        UsageError: Neither the option nor the program says which chip.
    """
    if name is not None:
        named = parse_target(name).chip
        if named is None:
            raise UsageError(
                "`local` is what is attached, not a chip with known figures",
                place=f"--chip {name}",
                hint="Name the chip, for example `--chip h100`; `hloscope targets` lists them.",
            )
        return named
    own = _own_chip(subject)
    if own is not None:
        return own
    raise UsageError(
        "nothing says which chip to hold the program against",
        place=subject.name or None,
        hint="Give --chip NAME, for example `--chip h100`; `hloscope targets` lists them.",
    )


def is_chip_known(subject: AuditSubject) -> bool:
    """Whether the program itself says which chip it is for."""
    return _own_chip(subject) is not None


def _own_chip(subject: AuditSubject) -> Chip | None:
    """The chip that a program was compiled for, by its target or its device's name."""
    target = subject.inputs().get(Chip)
    if isinstance(target, Chip):
        return target
    kind = str(subject.header().get("target", "")).partition("(")[2].rstrip(")")
    return chip_of_device_kind(kind)


def report_roofline(
    session: Session, subject: AuditSubject, *, by: Grouping = Grouping.OP, top: int = SHOWN
) -> Report:
    """Say how fast the program could be, what bounds it, and where.

    Args:
        session: Gives the roofline; it was given the chip.
        subject: Gives the report its head.
        by: What a line of the table of operations stands for.
        top: How many lines it has at most; 0 for all.

    Raises:
        AnalysisFailedError: The program could not be counted.
    """
    roofline = session.get(Roofline)
    trust, missing = trust_of(session)
    tables = [_step(roofline), _bounds(roofline)]
    if roofline.rows:
        tables.append(_operations(roofline, by, top))
    if roofline.unknown:
        tables.append(_unknown(roofline))
    return Report(
        command="roofline",
        subject=subject.name,
        header={**subject.header(), "chip": _figures(roofline.chip)},
        tables=tuple(tables),
        trust=trust,
        summary=_summary(roofline),
        notes=tuple(_notes(roofline, session, scheduled=_is_scheduled(roofline)))
        + ((missing,) if missing else ()),
    )


def _figures(chip: Chip) -> str:
    """The chip and what it is taken to reach."""
    peaks = [
        f"{dtype} {units.flop_rate(chip.peaks[dtype])}"
        for dtype in ("bf16", "f16", "tf32", "f32")
        if dtype in chip.peaks
    ]
    if "bf16" in chip.peaks:
        peaks = [peak for peak in peaks if not peak.startswith("f16 ")]
    for what, rate in (
        ("memory", chip.memory_bandwidth),
        ("links one way", chip.link_bandwidth_one_way),
    ):
        peaks.append(f"{what} {_byte_rate(rate) if rate is not None else 'unknown'}")
    if not chip.peaks:
        peaks.insert(0, "peaks unknown")
    return f"{chip.name} ({chip.title}): {', '.join(peaks)}"


def _byte_rate(rate: float) -> str:
    """Vendors count bandwidth in powers of ten."""
    return units.flop_rate(rate).replace("FLOP", "B")


def _lowest(name: str, span: Range) -> Quantity:
    if span.low <= 0:
        return Quantity(name, None, Unit.SECONDS, Basis.UNKNOWN)
    return Quantity(name, span.low, Unit.SECONDS, Basis.BOUNDED, _FLOOR)


def _step(roofline: Roofline) -> Table:
    """The whole program: the floor, what it is made of, and the compiler's estimate."""
    step = roofline.step
    rows: list[tuple[str | Quantity, ...]] = [
        ("floor", _lowest("floor", step.floor), "asynchronous work hidden wholly; no run is faster")
    ]
    if step.floor.low != step.floor.nominal:
        rows.append(
            (
                "floor, all run",
                _modelled("floor, all run", step.floor.nominal, _ALL_RUN),
                "the same with every branch taken and loops of unknown length run once",
            )
        )
    rows.append(
        ("nothing hidden", _lowest("nothing hidden", step.serial), "the sum of all operations")
    )
    total = roofline.step
    for name, span, what in (
        ("products", total.compute, "all products at peak"),
        ("memory", total.memory, "all memory traffic at bandwidth"),
        ("links", total.link, "all exchanges between devices, by the ring"),
    ):
        if span.low > 0:
            rows.append((name, _lowest(name, span), what))
    rows.append(_utilisation(roofline))
    rows += _estimates(roofline)
    return Table(
        "step",
        "One execution of the program",
        (Column(""), Column("time"), Column("what it is")),
        tuple(rows),
    )


def _modelled(name: str, seconds: float, model: str = _ROOFLINE) -> Quantity:
    return Quantity(name, seconds, Unit.SECONDS, Basis.MODELLED, model)


def _utilisation(roofline: Roofline) -> tuple[str | Quantity, ...]:
    share = roofline.step.utilisation
    name = "utilisation"
    if share is None or any(row.compute is None for row in roofline.rows):
        quantity = Quantity(name, None, Unit.SHARE, Basis.UNKNOWN)
    else:
        quantity = Quantity(name, share, Unit.SHARE, Basis.MODELLED, _ROOFLINE)
    return name, quantity, "of peak compute at the floor"


def _estimates(roofline: Roofline) -> Iterable[tuple[str | Quantity, ...]]:
    """The compiler's own estimate, in seconds where the chip's clock is known."""
    model = "compiler's estimate"
    if not roofline.estimated:
        if roofline.chip.kind is ChipKind.TPU:
            nothing = Quantity(model, None, Unit.SECONDS, Basis.UNKNOWN)
            yield model, nothing, "no operation of this module carries one"
        return
    mine = sum(row.nominal_seconds for row in roofline.rows if row.cycles is not None)
    of = (
        f"for {roofline.estimated} of {plural(len(roofline.rows), 'operation')}, "
        f"whose floor is {units.seconds(mine)}"
    )
    cycles = roofline.step.cycles.nominal
    clock = roofline.chip.clock_hz
    if clock is not None:
        rate = f"{units.three_digits(clock / 1e9)} GHz"
        yield (
            "compiler's estimate",
            _modelled(model, cycles / clock, model),
            f"{units.count(cycles)} cycles at {rate}, {of}; not a floor",
        )
    else:
        yield (
            "compiler's cycles",
            Quantity("compiler's cycles", cycles, Unit.COUNT, Basis.MODELLED, model),
            f"{of}; the chip's clock is not known",
        )


def _bounds(roofline: Roofline) -> Table:
    total = sum(row.nominal_seconds for row in roofline.rows)
    rows = []
    for bound in Bound:
        mine = [row for row in roofline.rows if row.bound is bound]
        if mine:
            seconds = sum(row.nominal_seconds for row in mine)
            known = any(row.seconds is not None for row in mine)
            rows.append(
                (
                    bound.value,
                    Quantity("operations", len(mine)),
                    _floor(mine),
                    _share(seconds, total, known=known),
                )
            )
    return Table(
        "bounds",
        "What bounds the operations",
        (
            Column("bound"),
            Column("operations", Unit.COUNT),
            Column("floor", Unit.SECONDS),
            Column("share", Unit.SHARE),
        ),
        tuple(rows),
        "" if rows else "The program does nothing that takes time.",
    )


def _floor(members: Sequence[RooflineRow]) -> Quantity:
    """The floor of some operations' runs; no bound where it is not known that they run."""
    seconds = sum(row.nominal_seconds for row in members)
    if all(row.seconds is None for row in members):
        return Quantity("floor", None, Unit.SECONDS, Basis.UNKNOWN)
    if any(row.times.exact is None for row in members):
        return Quantity("floor", seconds, Unit.SECONDS, Basis.MODELLED, _ALL_RUN)
    return Quantity("floor", seconds, Unit.SECONDS, Basis.BOUNDED, _FLOOR)


def _share(seconds: float, total: float, *, known: bool) -> Quantity:
    if not known or not total:
        return Quantity("share", None, Unit.SHARE, Basis.UNKNOWN)
    return Quantity("share", seconds / total, Unit.SHARE, Basis.MODELLED, _ROOFLINE)


def _operations(roofline: Roofline, by: Grouping, top: int) -> Table:
    groups = _grouped(roofline.rows, by)
    total = sum(row.nominal_seconds for row in roofline.rows)
    order = sorted(
        groups,
        key=lambda item: (
            -sum(row.nominal_seconds for row in item[1]),
            -sum((row.moved_bytes or 0) * row.times.nominal for row in item[1]),
            item[0],
        ),
    )
    shown = order[:top] if top else order
    with_estimate = roofline.estimated > 0
    columns = [
        Column(_TITLES[by], text=_TEXTS[by]),
        Column("FLOPs", Unit.FLOPS),
        Column("bytes", Unit.BYTES),
        Column("FLOP/B", Unit.COUNT),
        Column("bound"),
        Column("floor", Unit.SECONDS),
        Column("share", Unit.SHARE),
    ]
    if with_estimate:
        columns.append(Column("est.", Unit.SECONDS if roofline.chip.clock_hz else Unit.COUNT))
    rows = [
        _operation(name, members, total, roofline.chip if with_estimate else None)
        for name, members in shown
    ]
    left = order[len(shown) :]
    note = ""
    if left:
        seconds = sum(row.nominal_seconds for _, members in left for row in members)
        note = f"and {len(left)} more"
        note += f", {units.share(seconds / total)} of the floor" if total else ""
        note += "; --top 0 lists all"
    return Table("operations", _HEADS[by], tuple(columns), tuple(rows), note)


_TITLES = {Grouping.OP: "operation", Grouping.SCOPE: "scope", Grouping.SOURCE: "source"}
_TEXTS = {Grouping.OP: Text.NAME, Grouping.SCOPE: Text.PATH, Grouping.SOURCE: Text.SOURCE}
_HEADS = {
    Grouping.OP: "Operations, all runs of each together",
    Grouping.SCOPE: "Operations by scope",
    Grouping.SOURCE: "Operations by source line",
}


def _grouped(
    rows: Sequence[RooflineRow], by: Grouping
) -> Sequence[tuple[str, Sequence[RooflineRow]]]:
    if by is Grouping.OP:
        return [(_op(row), (row,)) for row in rows]
    groups: dict[str, list[RooflineRow]] = {}
    for row in rows:
        groups.setdefault(_scope(row) if by is Grouping.SCOPE else _source(row), []).append(row)
    return list(groups.items())


def _op(row: RooflineRow) -> str:
    runs = "" if row.times.exact == 1 else f" x{row.times}"
    return f"{row.instruction.name}{runs}"


def _scope(row: RooflineRow) -> str:
    """The scope that an operation stands in: its op_name without the primitive."""
    first = row.instruction.op_name.partition(";")[0]
    return first.rpartition("/")[0] or first or "(no scope)"


def _source(row: RooflineRow) -> str:
    location = row.instruction.location
    return str(location) if location is not None else "(no source line)"


def _operation(
    name: str, members: Sequence[RooflineRow], total: float, estimated_on: Chip | None
) -> tuple[str | Quantity, ...]:
    """One line; a group's bound is that of most of its time."""
    seconds = sum(row.nominal_seconds for row in members)
    known = any(row.seconds is not None for row in members)
    flops = _sum("FLOPs", members, [row.flops for row in members], Unit.FLOPS)
    moved = _sum("bytes", members, [row.moved_bytes for row in members], Unit.BYTES)
    by_bound: dict[Bound, float] = {}
    for row in members:
        by_bound[row.bound] = by_bound.get(row.bound, 0.0) + row.nominal_seconds
    cells: list[str | Quantity] = [
        name,
        flops,
        moved,
        _intensity(flops, moved),
        max(by_bound, key=lambda bound: by_bound[bound]).value,
        _floor(members),
        _share(seconds, total, known=known),
    ]
    if estimated_on is not None:
        cells.append(_estimate(members, estimated_on))
    return tuple(cells)


def _sum(
    name: str, members: Sequence[RooflineRow], values: Sequence[int | None], unit: Unit
) -> Quantity:
    """All runs together; unknown as soon as one is."""
    value = 0
    basis, model = Basis.EXACT, None
    for row, one in zip(members, values, strict=True):
        if one is None:
            return Quantity(name, None, unit, Basis.UNKNOWN)
        value += one * row.times.nominal
        if one and row.times.exact is None:
            basis, model = Basis.MODELLED, _ALL_RUN
    return Quantity(name, value, unit, basis, model)


def _intensity(flops: Quantity, moved: Quantity) -> str | Quantity:
    if moved.value == 0:
        return "-"  # it works in on-chip memory alone
    if flops.value is None or moved.value is None:
        return Quantity("FLOP/B", None, Unit.COUNT, Basis.UNKNOWN)
    return Quantity("FLOP/B", flops.value / moved.value, Unit.COUNT, flops.basis, flops.model)


def _estimate(members: Sequence[RooflineRow], chip: Chip) -> str | Quantity:
    cycles = [row.cycles * row.times.nominal for row in members if row.cycles is not None]
    unit = Unit.SECONDS if chip.clock_hz else Unit.COUNT
    if not cycles:
        return "-"
    value = sum(cycles) / chip.clock_hz if chip.clock_hz else sum(cycles)
    return Quantity("estimate", value, unit, Basis.MODELLED, "compiler's estimate")


def _unknown(roofline: Roofline) -> Table:
    """What has no figure, by reason."""
    reasons: dict[str, list[RooflineRow]] = {}
    for row in roofline.unknown:
        for reason in row.unknown:
            reasons.setdefault(reason, []).append(row)
    rows = tuple(
        (Quantity("operations", len(members)), members[0].instruction.name, reason)
        for reason, members in sorted(reasons.items(), key=lambda item: -len(item[1]))
    )
    return Table(
        "unknown",
        "Without a figure",
        (Column("operations", Unit.COUNT), Column("first one"), Column("why")),
        rows,
        "The floor leaves these parts out.",
    )


def _is_scheduled(roofline: Roofline) -> bool:
    return all(row.instruction.computation.module.is_scheduled for row in roofline.rows[:1])


def _notes(roofline: Roofline, session: Session, *, scheduled: bool) -> Iterable[str]:
    yield _METHOD
    if roofline.estimated:
        yield _ESTIMATE
    if not scheduled:
        yield _NOT_SCHEDULED
    gpu = roofline.chip.gpu
    if gpu is not None:
        cache = units.byte_size(gpu.l2_cache_size)
        yield f"what the L2 cache ({cache}) still holds of the operation before is counted as read."
    used = {unit for row in roofline.rows for unit in row.units}
    widened = sorted(unit for unit in used if unit.startswith(("tf32", "bf16 x")))
    if widened:
        yield f"float32 products are held against {' and '.join(widened)}, as XLA multiplies them."
    kernels = [row for row in _ledger_kernels(session) if row]
    if kernels:
        number = plural(len(kernels), "custom kernel")
        yield f"{number} counted by what the author recorded, which may be more than it does."
    if roofline.unplaced:
        yield (
            f"{plural(roofline.unplaced, 'product')} in reducers left out: how often they run "
            "is not known."
        )


def _ledger_kernels(session: Session) -> Sequence[int | None]:
    try:
        ledger = session.get(FlopLedger)
    except Unavailable:
        return ()
    return [row.count.flops for row in ledger.rows if row.count.kind is Kind.KERNEL]


def _summary(roofline: Roofline) -> str:
    chip = roofline.chip
    floor = roofline.step.floor.low
    if floor <= 0:
        head = f"How long a step takes at least on {chip.name} is not known."
    else:
        head = f"A step takes at least {units.seconds(floor)} on {chip.name} (a floor)."
    cycles = roofline.step.cycles.nominal
    if roofline.estimated and chip.clock_hz:
        of = " it" if roofline.estimated == len(roofline.rows) else " part of it"
        head += f" The compiler's own estimate of{of} is "
        head += f"{units.seconds(cycles / chip.clock_hz)}."
    if roofline.unknown:
        head += (
            f" {len(roofline.unknown)} of {plural(len(roofline.rows), 'operation')} "
            "have parts without a figure."
        )
    return head
