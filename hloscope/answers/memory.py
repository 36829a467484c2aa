"""How much memory a program takes, when and for what, as a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hloscope import units
from hloscope.answers.residuals import residual_notes, residual_tables
from hloscope.chips import Chip
from hloscope.errors import Unavailable, UsageError
from hloscope.passes.batch_fit import LINEAR, BatchFit
from hloscope.passes.buffer_kinds import BufferKind, BufferKinds, named_origin
from hloscope.passes.heap_block import HeapBlock, needed_memory
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.audit import AuditSubject, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.inputs import XlaMemory
from hloscope.pipeline.session import Session

__all__ = ["AT_PEAK", "SHOWN", "report_memory"]

SHOWN = 15
"""Buffers that are listed unless asked otherwise."""

AT_PEAK = "peak"
"""The moment that is shown unless asked otherwise."""

_Row = tuple[str | Quantity, str | Quantity, str | Quantity, str | Quantity, str | Quantity]

_DEEPEST = 9
_XLA = "XLA's memory analysis"


def report_memory(
    session: Session, subject: AuditSubject, *, at: str = AT_PEAK, top: int = SHOWN
) -> Report:
    """Say what the program takes, what lives at the peak, and whether a chip holds it.

    Args:
        session: Gives the memory; it was given the chip, if one is known.
        subject: Gives the report its head.
        at: ``peak``, or the name of an instruction of the entry.
        top: How many buffers are listed at most; 0 for all.

    Raises:
        Unavailable: The module is not scheduled.
        UsageError: The entry has no instruction of that name.
    """
    use = session.get(MemoryUse)
    chip = session.find(Chip)
    xla = session.find(XlaMemory)
    fit = session.find(BatchFit)
    block = session.find(HeapBlock) if use.basis is not Basis.EXACT else None
    moment = _Moment.of(use, session.get(BufferKinds), at)
    tables = [_totals(use, block, xla)]
    if chip is not None and chip.memory_bytes is not None:
        tables.append(_fit(use, block, chip.memory_bytes, fit))
    tables += [_kinds(moment), _buffers(moment, top)]
    tables += residual_tables(session)
    header = dict(subject.header())
    if chip is not None:
        memory = units.byte_size(chip.memory_bytes) if chip.memory_bytes else "memory unknown"
        header["chip"] = f"{chip.name} ({chip.title}): {memory}"
    trust, missing = trust_of(session)
    notes = [*_notes(session, use, block, chip, xla), *([missing] if missing else [])]
    return Report(
        command="memory",
        subject=subject.name,
        header=header,
        tables=tuple(tables),
        trust=trust,
        summary=_summary(use, block, chip),
        notes=tuple(notes),
    )


class _Moment:
    """The buffers that live at one moment, largest first, and its name."""

    def __init__(self, title: str, held: Sequence[HeldBuffer]) -> None:
        self.title = title
        self.held = held
        self.total = sum(one.size for one in held)

    @classmethod
    def of(cls, use: MemoryUse, kinds: BufferKinds, at: str) -> _Moment:
        if at == AT_PEAK:
            return cls("at the peak", use.alive)
        ranges = use.ranges
        instruction = ranges.entry.computation.get(at.lstrip("%"))
        if instruction is None:
            raise UsageError(
                f"the entry has no instruction {at}",
                place=f"--at {at}",
                hint="Give `peak` or the name of an instruction of the entry computation.",
            )
        lasting = (BufferKind.PARAMETER, BufferKind.OUTPUT, BufferKind.CONSTANT)
        held = [one for one in use.alive if one.kind in lasting]
        for buffer in ranges.alive(at=instruction.index):
            made = buffer.instruction
            kind = kinds[buffer]
            held.append(
                HeldBuffer(
                    made, named_origin(made), buffer.shape, buffer.size, kind, buffer.space, buffer
                )
            )
        held.sort(key=lambda one: (-one.size, one.instruction.name))
        return cls(f"under {instruction.name}", held)


def _bytes(name: str, value: int, use: MemoryUse) -> Quantity:
    return Quantity(name, value, Unit.BYTES, use.basis, use.model)


def _counted(name: str, value: int) -> Quantity:
    return Quantity(name, value, Unit.BYTES)


def _needed(use: MemoryUse, block: HeapBlock | None, name: str, value: int) -> Quantity:
    """A figure that stands on the block where there is one."""
    if block is None:
        return _bytes(name, value, use)
    return Quantity(name, value, Unit.BYTES, Basis.MODELLED, block.model)


def _totals(use: MemoryUse, block: HeapBlock | None, xla: XlaMemory | None) -> Table:
    """What the program takes, beside what XLA says of the same executable."""
    values: Mapping[str, int] = xla.values if xla is not None else {}
    outputs = None
    if "output_size_in_bytes" in values and "alias_size_in_bytes" in values:
        outputs = values["output_size_in_bytes"] - values["alias_size_in_bytes"]
    temporaries = values.get("temp_size_in_bytes")
    rows = [
        _against(
            _counted("arguments", use.arguments), values.get("argument_size_in_bytes"), "all inputs"
        ),
        _against(_counted("results apart", use.outputs), outputs, "in no argument's memory"),
        _against(_counted("constants", use.constants), None, "in the executable"),
        _against(
            _bytes("temporaries", use.temporaries.get(Space.DEVICE, 0), use),
            temporaries if use.basis is Basis.EXACT else None,
            "alive at once, at most" if use.basis is not Basis.EXACT else "the block they lie in",
        ),
    ]
    if block is not None:
        rows += _block_rows(use, block, temporaries)
    whole = "what lives at once" if block is not None else "all of these"
    rows.append(_against(_bytes("peak", use.peak, use), _xla_peak(use, values), whole))
    if block is not None:
        allocated = _needed(use, block, "allocated", needed_memory(use, block))
        rows.append(_against(allocated, None, "what the device has to give"))
    rows.append(
        _against(
            _counted("results in place", use.aliased),
            values.get("alias_size_in_bytes"),
            "take over an argument's memory",
        )
    )
    for space, what in ((Space.ON_CHIP, "inside the core"), (Space.HOST, "pinned host memory")):
        size = use.temporaries.get(space, 0)
        if size:
            rows.append(_against(_bytes(f"{space} temporaries", size, use), None, what))
    return Table(
        "memory",
        "One device, one execution",
        (
            Column(""),
            Column("bytes", Unit.BYTES),
            Column("XLA says", Unit.BYTES),
            Column("off by", Unit.SHARE),
            Column("what it is"),
        ),
        tuple(rows),
    )


def _block_rows(use: MemoryUse, block: HeapBlock, temporaries: int | None) -> list[_Row]:
    gaps = _needed(use, block, "gaps between them", block.gaps)
    whole = _needed(use, block, "block of both", block.size)
    rows = [_against(gaps, None, f"offsets are multiples of {units.byte_size(block.alignment)}")]
    if block.reported == block.size:
        return [*rows, _against(whole, temporaries, "one allocation")]
    counted = _needed(use, block, "as XLA counts it", block.reported)
    return [
        *rows,
        _against(whole, None, "one allocation"),
        _against(counted, temporaries, "the block with the gaps twice"),
    ]


def _xla_peak(use: MemoryUse, values: Mapping[str, int]) -> int | None:
    """XLA's peak where it holds the temporaries of the device; a CPU's leaves them out."""
    peak = values.get("peak_memory_in_bytes")
    if not peak or peak < use.arguments + use.temporaries.get(Space.DEVICE, 0) // 2:
        return None
    return peak if use.peak == use.peak_of_any else None


def _against(mine: Quantity, theirs: int | None, what: str) -> _Row:
    if theirs is None or mine.value is None:
        return mine.name, mine, "-", "-", what
    off: str | Quantity = "-"
    if theirs:
        off = Quantity("off by", mine.value / theirs - 1, Unit.SHARE)
    return mine.name, mine, Quantity(_XLA, theirs, Unit.BYTES), off, what


def _fit(use: MemoryUse, block: HeapBlock | None, memory: int, fit: BatchFit | None) -> Table:
    needed = needed_memory(use, block)
    rows: list[tuple[str | Quantity, ...]] = [
        ("memory of the chip", _counted("memory of the chip", memory), "as XLA sees it"),
        (
            "resident",
            _counted("resident", use.resident),
            f"{units.share(use.resident / use.peak)} of the peak" if use.peak else "",
        ),
        (
            "allocated",
            _needed(use, block, "allocated", needed),
            f"{units.share(needed / memory)} of the chip",
        ),
        (
            "headroom",
            _needed(use, block, "headroom", memory - needed),
            "left over" if memory >= needed else "too little: it does not fit",
        ),
    ]
    if fit is not None:
        largest = Quantity("largest batch", fit.largest, Unit.COUNT, Basis.MODELLED, LINEAR)
        rows.append(
            (
                "largest batch",
                largest,
                f"now {fit.batch}; {units.byte_size(fit.fixed)} stay, "
                f"{units.byte_size(fit.growing)} grow with it",
            )
        )
    return Table(
        "fit", "Does it fit", (Column(""), Column("size"), Column("what it is")), tuple(rows)
    )


def _kinds(moment: _Moment) -> Table:
    rows = []
    for kind in BufferKind:
        mine = [held for held in moment.held if held.kind is kind]
        if mine:
            size = sum(held.size for held in mine)
            rows.append(
                (
                    kind.value,
                    Quantity("buffers", len(mine)),
                    _counted("bytes", size),
                    Quantity("share", size / moment.total, Unit.SHARE),
                )
            )
    rows.sort(key=lambda row: -(row[2].value or 0))
    return Table(
        "kinds",
        f"What lives {moment.title}",
        (
            Column("kind"),
            Column("buffers", Unit.COUNT),
            Column("bytes", Unit.BYTES),
            Column("share", Unit.SHARE),
        ),
        tuple(rows),
    )


def _buffers(moment: _Moment, top: int) -> Table:
    shown = moment.held[:top] if top else moment.held
    rows = tuple(
        (
            held.instruction.name,
            str(held.shape.without_layout()),
            _counted("bytes", held.size),
            held.kind.value,
            _scope(held),
            str(held.origin.location or "-"),
        )
        for held in shown
    )
    left = moment.held[len(shown) :]
    note = ""
    if left:
        rest = sum(held.size for held in left)
        note = f"and {len(left)} more, {units.byte_size(rest)}; --top 0 lists all"
    return Table(
        "buffers",
        f"Buffers {moment.title}",
        (
            Column("buffer", text=Text.NAME, spare=True),
            Column("array", text=Text.ARRAY),
            Column("bytes", Unit.BYTES),
            Column("kind"),
            Column("leaf or scope", text=Text.PATH),
            Column("source", text=Text.SOURCE),
        ),
        rows,
        note,
    )


def _scope(held: HeldBuffer) -> str:
    """Scope; of an argument its pytree path, which is its op_name."""
    name = held.origin.op_name
    if held.kind is BufferKind.PARAMETER:
        return name or "-"
    return collapse_scope(name, _DEEPEST) or name or "-"


def _summary(use: MemoryUse, block: HeapBlock | None, chip: Chip | None) -> str:
    under = f" under {use.under[-1].name}" if use.under else ""
    text = (
        f"peak {units.byte_size(use.peak)}{under}: {units.byte_size(use.resident)} resident, "
        f"{units.byte_size(use.temporaries.get(Space.DEVICE, 0))} temporaries"
    )
    if chip is None or chip.memory_bytes is None:
        return text
    room = chip.memory_bytes - needed_memory(use, block)
    if room < 0:
        return f"{text}; {units.byte_size(-room)} more than {chip.name} has"
    return f"{text}; fits {chip.name} with {units.byte_size(room)} to spare"


def _notes(
    session: Session,
    use: MemoryUse,
    block: HeapBlock | None,
    chip: Chip | None,
    xla: XlaMemory | None,
) -> Iterator[str]:
    if use.basis is Basis.EXACT:
        yield "read from XLA's buffer assignment, which the module carries"
    elif block is None:
        try:
            session.get(HeapBlock)
        except Unavailable as missing:
            yield f"the block that the temporaries lie in is not known: {missing}"
    if chip is None:
        yield "no chip is known to hold it against: give --chip NAME"
    elif chip.memory_bytes is not None:
        try:
            session.get(BatchFit)
        except Unavailable as missing:
            yield f"which batch would fit is not known: {missing}"
    if xla is None:
        yield "nothing to compare with: a bare module comes without a memory analysis"
    elif xla.values.get("peak_memory_in_bytes") and _xla_peak(use, xla.values) is None:
        if use.peak != use.peak_of_any:
            yield "XLA's peak speaks of memory inside the core here, which holds more temporaries"
        else:
            yield "XLA's peak leaves the temporaries out here, so there is none to compare with"
    yield from residual_notes(session)
    if _loops(use.ranges):
        yield "a loop counts with the peak of one run of its body"


def _loops(ranges: LiveRanges) -> bool:
    return any(i.opcode == "while" for i in ranges.entry.computation.instructions)
