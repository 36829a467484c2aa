"""A program held against a chip's roofline, as a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloscope import units
from hloscope.answers.roofline_operations import (
    ALL_RUN,
    FLOOR,
    ROOFLINE,
    Grouping,
    floor,
    operations,
    share_of_time,
)
from hloscope.chips import Chip, ChipKind, chip_of_device_kind, parse_target
from hloscope.errors import UsageError
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.roofline import Bound, Range, Roofline, RooflineRow
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Unit
from hloscope.pipeline.session import Session

__all__ = ["Grouping", "SHOWN", "chip_for", "is_chip_known", "named_chip", "report_roofline"]

SHOWN = 20
"""Operations that are listed unless asked otherwise."""

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
        return named_chip(name)
    own = _own_chip(subject)
    if own is not None:
        return own
    raise UsageError(
        "nothing says which chip to hold the program against",
        place=subject.name or None,
        hint="Give --chip NAME, for example `--chip h100`; `hloscope targets` lists them.",
    )


def named_chip(name: str) -> Chip:
    """The chip of that name.

    Raises:
        TargetError: There is no such chip.
        UsageError: It is ``local``, of which no figures are known.
    """
    named = parse_target(name).chip
    if named is None:
        raise UsageError(
            "`local` is what is attached, not a chip with known figures",
            place=f"--chip {name}",
            hint="Name the chip, for example `--chip h100`; `hloscope targets` lists them.",
        )
    return named


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
        tables.append(operations(roofline, by, top))
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
    return Quantity(name, span.low, Unit.SECONDS, Basis.BOUNDED, FLOOR)


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
                _modelled("floor, all run", step.floor.nominal, ALL_RUN),
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


def _modelled(name: str, seconds: float, model: str = ROOFLINE) -> Quantity:
    return Quantity(name, seconds, Unit.SECONDS, Basis.MODELLED, model)


def _utilisation(roofline: Roofline) -> tuple[str | Quantity, ...]:
    share = roofline.step.utilisation
    name = "utilisation"
    if share is None or any(row.compute is None for row in roofline.rows):
        quantity = Quantity(name, None, Unit.SHARE, Basis.UNKNOWN)
    else:
        quantity = Quantity(name, share, Unit.SHARE, Basis.MODELLED, ROOFLINE)
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
                    floor(mine),
                    share_of_time(seconds, total, known=known),
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
    ledger = session.find(FlopLedger)
    if ledger is None:
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
