"""A trace's instructions by time: what rate each reached, and how far that is from the chip's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hloscope import units
from hloscope.answers.trace_cells import PS, seconds, share
from hloscope.chips import Chip, ChipKind
from hloscope.passes.roofline import Bound
from hloscope.passes.traced_join import TraceJoin
from hloscope.passes.traced_operation import TracedOperation
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit
from hloscope.traces.kernel_instructions import Link

__all__ = ["instruction_table", "join_facts", "join_sentence"]

_VENDOR = "peak of the vendor"
_WRONG = (
    "a loop may run less often than counted, kernels be missing, the recording's clock be wrong, "
    "or the chip another one (--chip)"
)
_T, _G = 1e12, 1e9
_LISTED = 3
_THOUSAND = 1000


def join_facts(join: TraceJoin) -> Mapping[str, str | Quantity]:
    """For the head of the report: the chip, how much is joined, and utilisation."""
    facts: dict[str, str | Quantity] = {
        "chip": "; ".join(f"{each.chip.title} ({each.how})" for each in join.chips)
    }
    facts["time joined to instructions"] = share("joined", join.joined, join.time)
    if join.joined:
        facts["of it with known FLOPs"] = share("counted", join.counted, join.joined)
    achieved = _achieved(join)
    if achieved is not None:
        facts["achieved in the window"] = achieved
    return facts | dict(_utilisations(join))


def _achieved(join: TraceJoin) -> str | None:
    """FLOP/s of all products over the windows, with the chip's peaks that they have."""
    flops = sum(program.flops for program in join.programs)
    if not flops or not join.window:
        return None
    uncounted = join.unheld or any(program.uncounted for program in join.programs)
    text = ("at least " if uncounted else "") + units.flop_rate(flops / (join.window * PS))
    devices = max(program.devices for program in join.programs)
    each = " a device" if devices > 1 else ""
    peaks = " and ".join(_peak(chip, unit) for chip, unit in _peaks(join)[:_LISTED])
    if not peaks:
        return f"{text}{each}; no peak of {_titles(join)} is known, so no utilisation either"
    return f"{text}{each}, of {peaks}"


def _is_profiled(join: TraceJoin) -> bool:
    return any(program.profiled for program in join.programs)


def _titles(join: TraceJoin) -> str:
    return " and ".join(dict.fromkeys(program.chip.title for program in join.programs))


def _peaks(join: TraceJoin) -> list[tuple[Chip, str]]:
    """The peaks that products are held against, those of most seconds first."""
    found: dict[tuple[str, str], tuple[float, Chip]] = {}
    for program in join.programs:
        for unit, value in program.units.items():
            before = found.get((program.chip.name, unit), (0.0, program.chip))[0]
            found[program.chip.name, unit] = before + value, program.chip
    order = sorted(found.items(), key=lambda item: -item[1][0])
    return [(chip, unit) for (_, unit), (_, chip) in order]


def _peak(chip: Chip, unit: str) -> str:
    dtype, _, passes = unit.partition(" x")
    rate = chip.peaks[dtype] / (int(passes) if passes else 1)
    return f"{units.flop_rate(rate)} {unit} dense ({chip.title})"


def _utilisations(join: TraceJoin) -> Iterator[tuple[str, Quantity]]:
    """MFU, and with what is computed again; a lower bound where something has no figure."""
    at_peak = sum(program.peak_seconds for program in join.programs)
    again = sum(program.recomputed_seconds for program in join.programs)
    if not at_peak or not join.window:
        return
    complete = not join.unheld and not any(program.missing for program in join.programs)
    inferred = any(program.inferred for program in join.programs)
    count = "the profiler's own count" if _is_profiled(join) else "FLOP ledger"
    model = f"{count}, {_VENDOR}{', runs inferred' if inferred else ''}"
    basis = Basis.MODELLED if complete else Basis.BOUNDED
    length = join.window * PS

    def of(name: str, spent: float) -> Quantity:
        said = model if complete else f"lower bound: {model}"
        return Quantity(name, spent / length, Unit.SHARE, basis, said)

    yield "utilisation (MFU)", of("MFU", at_peak - again)
    if again:
        yield "with recomputed work (HFU)", of("HFU", at_peak)


def join_sentence(join: TraceJoin) -> str:
    """Utilisation in a sentence for the summary; empty where it is not known."""
    for name, quantity in _utilisations(join):
        peaks = _peaks(join)
        if quantity.value is None:
            return ""
        at_least = "at least " if quantity.basis is Basis.BOUNDED else ""
        text = f" {name[0].upper()}{name[1:]}: {at_least}{units.share(quantity.value)} of"
        text += f" {_peak(*peaks[0])}"
        if len(peaks) > 1:
            others = ", ".join(unit for _, unit in peaks[1:])
            text += f"; products in {others} are held against their own peaks"
        if quantity.value > 1:
            text += f", which is more than it can do: {_WRONG}"
        return f"{text}."
    return ""


def instruction_table(join: TraceJoin, top: int) -> Table:
    """Instructions, those that took longest first.

    Args:
        join: The trace with its programs.
        top: Rows at most; 0 for all.
    """
    several = len({each.module for each in join.operations}) > 1
    rated = any(each.of_roof is not None for each in join.operations)
    multiplied = any(each.of_peak is not None for each in join.operations)
    shown = join.operations[: top or None]
    fastest = max((each.flop_rate or 0.0 for each in shown), default=0.0)
    unit, name = (_T, "TFLOP/s") if fastest >= _T / 10 else (_G, "GFLOP/s")
    columns = [
        Column("instruction", text=Text.NAME),
        Column("time", Unit.SECONDS),
        Column("share", Unit.SHARE),
        Column(name, Unit.COUNT),
        Column("GB/s", Unit.COUNT),
        Column("of roof", Unit.SHARE, drawn=rated),
        Column("bound", drawn=rated),
        Column("runs", Unit.COUNT, spare=True),
        Column("each", Unit.SECONDS, spare=True),
        Column("source", text=Text.SOURCE, spare=True),
        Column("program", drawn=several, spare=True),
        Column("FLOP/s", Unit.COUNT, drawn=False),
        Column("B/s", Unit.COUNT, drawn=False),
        Column("of peak", Unit.SHARE, drawn=multiplied and not rated),
        Column("of bandwidth", Unit.SHARE, drawn=False),
        Column("kernels", Unit.COUNT, drawn=False),
        Column("FLOPs each", Unit.FLOPS, drawn=False),
        Column("bytes each", Unit.BYTES, drawn=False),
        Column("joined", drawn=False),
        Column("doubt", drawn=False),
    ]
    rows = tuple(_row(each, join.time, unit) for each in shown)
    notes = list(_notes(join))
    left = len(join.operations) - len(shown)
    if left:
        rest = sum(each.time for each in join.operations[len(shown) :])
        of_time = f", {units.share(rest / join.time)} of the time" if join.time else ""
        notes.append(f"{left:,} more{of_time}; --top 0 lists all.")
    return Table("instructions", "Instructions by time", tuple(columns), rows, " ".join(notes))


def _row(each: TracedOperation, total: int, unit: float) -> tuple[str | Quantity, ...]:
    row = each.row
    location = each.instruction.location if each.instruction is not None else None
    return (
        _name(each),
        seconds("time", each.time),
        share("share", each.time, total),
        _flop_rate(each, unit),
        _rate("GB/s", each.byte_rate, _G, each.execution_models),
        _of_roof(each),
        _bound(each),
        _runs(each),
        _each(each),
        str(location) if location is not None else "",
        each.module,
        _flop_rate(each, 1.0),
        _rate("B/s", each.byte_rate, 1.0, each.execution_models),
        _of_peak(each),
        _share("of bandwidth", each.of_bandwidth, each.execution_models),
        Quantity("kernels", each.kernels),
        _amount("FLOPs", row.flops if row is not None else None, Unit.FLOPS, each),
        _amount("bytes", row.moved_bytes if row is not None else None, Unit.BYTES, each),
        each.link.value,
        _doubt(each),
    )


def _name(each: TracedOperation) -> str:
    if each.link is Link.GRAPH:
        return "(one CUDA graph, its kernels not recorded)"
    if each.name:
        return each.name
    what = each.labels[0] if len(each.labels) == 1 else plural(len(each.labels), "kernel")
    return f"(no instruction: {what})"


def _rate(name: str, value: float | None, unit: float, models: tuple[str, ...]) -> Quantity:
    if value is None:
        return Quantity(name, None, Unit.COUNT, Basis.UNKNOWN)
    basis = Basis.MODELLED if models else Basis.EXACT
    scaled = value / unit
    # Thousands of them as whole numbers: 1.42 K GB/s is hard to read.
    scaled = round(scaled) if unit > 1 and scaled >= _THOUSAND else scaled
    return Quantity(name, scaled, Unit.COUNT, basis, ", ".join(models) or None)


def _flop_rate(each: TracedOperation, unit: float) -> str | Quantity:
    if _has_no_products(each):
        return "-"
    return _rate("FLOP/s", each.flop_rate, unit, each.models)


def _has_no_products(each: TracedOperation) -> bool:
    """What is known to multiply nothing."""
    if each.row is not None:
        return each.row.flops == 0
    return each.instruction is not None or each.flop_rate == 0


def _share(name: str, value: float | None, models: tuple[str, ...]) -> Quantity:
    if value is None:
        return Quantity(name, None, Unit.SHARE, Basis.UNKNOWN)
    return Quantity(name, value, Unit.SHARE, Basis.MODELLED, ", ".join(models) or _VENDOR)


def _of_peak(each: TracedOperation) -> str | Quantity:
    if _has_no_products(each):
        return "-"
    return _share("of peak", each.of_peak, each.models)


def _of_roof(each: TracedOperation) -> str | Quantity:
    if each.is_control:
        return "-"
    models = each.models if each.bound is Bound.COMPUTE else each.execution_models
    return _share("of roof", each.of_roof, models)


def _bound(each: TracedOperation) -> str:
    if each.is_control:
        return "control"
    if each.is_above_peak:
        return "above peak!"
    if each.is_above_bandwidth:
        return "above memory!"
    return each.bound.value


def _runs(each: TracedOperation) -> Quantity:
    number = each.executions.number
    if number is None:
        return Quantity("runs", None, Unit.COUNT, Basis.UNKNOWN)
    if each.executions.exact:
        return Quantity("runs", number)
    return Quantity("runs", number, Unit.COUNT, Basis.MODELLED, "runs inferred")


def _each(each: TracedOperation) -> Quantity:
    model = None if each.executions.exact else "runs inferred"
    spent = each.seconds
    return seconds("each", spent / PS if spent is not None else None, model)


def _amount(name: str, value: int | None, unit: Unit, each: TracedOperation) -> Quantity:
    if value is None:
        return Quantity(name, None, unit, Basis.UNKNOWN)
    models = tuple(model for model in each.models if model not in each.execution_models)
    if unit is Unit.FLOPS and models:
        return Quantity(name, value, unit, Basis.MODELLED, ", ".join(models))
    return Quantity(name, value, unit)


def _doubt(each: TracedOperation) -> str:
    if each.is_above_peak:
        return "faster than the chip can multiply"
    return "more bytes than the chip's memory moves" if each.is_above_bandwidth else ""


def _notes(join: TraceJoin) -> Iterator[str]:
    yield "FLOP/s: products only."
    if any(each.of_roof is not None for each in join.operations):
        yield (
            "of roof: the least time that the chip takes, by its vendor's peaks, as a share of "
            "what it took; bound says which peak that is."
        )
    if any("masked pairs left out" in each.models for each in join.operations):
        yield "Pairs that an attention's mask hides are not counted."
    if any(each.profiler_flops is not None and each.row is None for each in join.operations):
        yield (
            "No module is embedded: FLOPs and bytes are the profiler's own, bytes in all kinds of "
            "memory."
        )
    by_name = join.time_of(lambda each: each.link is Link.BY_NAME)
    if by_name and join.time:
        yield f"{units.share(by_name / join.time)} of the time is joined by kernel name."
    graphs = join.time_of(lambda each: each.link is Link.GRAPH)
    if graphs and join.time:
        yield (
            f"{units.share(graphs / join.time)} of the time is CUDA graphs whose kernels were not "
            "recorded."
        )
    yield from _above(join)
    yield from _missing(join)


def _above(join: TraceJoin) -> Iterator[str]:
    fast = [each.name for each in join.operations if each.is_above_peak]
    if fast:
        yield (
            f"{plural(len(fast), 'instruction')} above the chip's peak ({_some(fast)}): {_WRONG}."
        )
    memory = [
        each.name for each in join.operations if each.is_above_bandwidth and not each.is_above_peak
    ]
    if memory:
        yield (
            f"{plural(len(memory), 'instruction')} above the memory's bandwidth "
            f"({_some(memory)}): what a cache still held is counted as read, or the chip is "
            "another one (--chip)."
        )


def _some(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _missing(join: TraceJoin) -> Iterator[str]:
    reasons = dict.fromkeys(
        reason
        for program in join.programs
        if program.chip.kind is not ChipKind.CPU
        for reason in program.missing
    )
    if join.unheld and join.programs and join.time:
        of_time = units.share(join.unheld / join.time)
        reasons[f"kernels whose program is not at hand, {of_time} of the time"] = None
    if reasons:
        yield f"Utilisation leaves out: {_some(list(reasons))}."
