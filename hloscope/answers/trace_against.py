"""Two runs side by side: whether a step became slower, and what of it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hloscope import units
from hloscope.answers.trace_cells import PS, seconds
from hloscope.answers.trace_changes import (
    Cells,
    change_cells,
    change_columns,
    change_list,
    named_cells,
    operation_cells,
    unit_of,
)
from hloscope.errors import UsageError
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.traces.compared import counted
from hloscope.traces.exposure import Parts
from hloscope.traces.run_difference import RunDifference, Side, StepVerdict
from hloscope.traces.summary import DeviceSummary, Trace

__all__ = ["report_against"]

_PARTS: tuple[tuple[str, Callable[[Parts], int]], ...] = (
    ("compute", lambda parts: parts.compute),
    ("exposed communication", lambda parts: parts.exposed_communication),
    ("exposed copies", lambda parts: parts.exposed_copies),
    ("control flow", lambda parts: parts.control),
    ("idle", lambda parts: parts.idle),
)
"""They add up to the window."""


def report_against(
    before: Trace, after: Trace, *, top: int, fail_slower: float | None = None
) -> Report:
    """Say what changed from one run to another.

    Args:
        before: The first run, read to be compared.
        after: The second, read so as well.
        top: Rows of each list at most; 0 for all.
        fail_slower: By what share the median step may be slower before the report fails;
            it has to be beyond what the steps of either run vary, too.

    Raises:
        UsageError: A run is to be gated whose steps, or their spread, are not known.
    """
    found = RunDifference(before, after)
    verdict = found.verdict
    if fail_slower is not None and (verdict is None or verdict.apart is None):
        raise UsageError(
            "a slower step is told from noise by at least four steps of each run",
            place="--fail-slower",
            hint="Record more steps, each within jax.profiler.StepTraceAnnotation.",
        )
    passed = None
    if fail_slower is not None and verdict is not None:
        passed = not (verdict.apart and (verdict.share or 0.0) > fail_slower)
    tables = [_runs(found), _parts(found)]
    if len(before.devices) > 1 and _same_devices(before, after):
        tables.append(_devices(found, top))
    comparable = _joined(before) == _joined(after)
    lists = [
        change_list(found, "category", found.categories, top, named_cells),
        change_list(found, "family", found.families, top, named_cells),
        *([change_list(found, "op", found.operations, top, operation_cells)] if comparable else []),
    ]
    tables += [table for table in lists if table is not None]
    return Report(
        "trace",
        f"{before.name} against {after.name}",
        {"before": before.name, "after": after.name},
        summary=_summary(found) + _gate(passed, fail_slower),
        tables=tuple(tables),
        passed=passed,
        notes=tuple(_notes(found, comparable, [table is None for table in lists])),
    )


def _gate(passed: bool | None, fail_slower: float | None) -> str:
    if passed is None or fail_slower is None:
        return ""
    share = units.share(fail_slower)
    return f" Within the {share} that is allowed." if passed else f" More than the {share} allowed."


def _summary(found: RunDifference) -> str:
    verdict = found.verdict
    window = found.part(lambda parts: parts.window.length)
    if verdict is None:
        share = window[1] / window[0] - 1 if window[0] else None
        return (
            f"{_arrow(*window)} a device's window{_by(share)}: no steps are known in "
            f"{_without_steps(found)}, so whole windows are compared, which may hold "
            "different work."
        )
    text = f"{_arrow(verdict.before, verdict.after)} a step"
    if verdict.before == verdict.after:
        return f"{text}: no difference in the median step."
    text += _by(verdict.share)
    if verdict.apart is None:
        return f"{text}; whether that is noise is not known with so few steps."
    if not verdict.apart:
        return f"{text}: within the spread of the steps."
    return f"{text}: larger than the spread of either{_mostly(found, verdict)}."


def _arrow(before: float, after: float) -> str:
    return f"{units.seconds(before * PS)} -> {units.seconds(after * PS)}"


def _by(share: float | None) -> str:
    return "" if share is None else f", {share:+.1%}"


def _mostly(found: RunDifference, verdict: StepVerdict) -> str:
    """The part that changed most in the direction of the whole."""
    sign = 1 if verdict.after > verdict.before else -1
    changes = {name: after - before for name, (before, after) in _each_part(found)}
    name = max(changes, key=lambda each: sign * changes[each])
    whole = sum(changes.values())
    if sign * changes[name] <= 0 or sign * whole <= 0:
        return ""
    change = ("+" if sign > 0 else "-") + units.seconds(abs(changes[name]) * PS)
    return f"; the most by {name}, {change}"


def _each_part(found: RunDifference) -> Iterator[tuple[str, tuple[float, float]]]:
    for name, of in _PARTS:
        yield name, found.part(of)


def _without_steps(found: RunDifference) -> str:
    sides = (("the first run", found.before.trace), ("the second", found.after.trace))
    missing = [name for name, trace in sides if not all(d.steps.rows for d in trace.devices)]
    return " and ".join(missing) or "the windows that were asked for"


def _runs(found: RunDifference) -> Table:
    return Table(
        "runs",
        "The two runs",
        (
            Column("run", text=Text.WORD),
            Column("devices", Unit.COUNT),
            Column("window"),
            Column("steps", Unit.COUNT),
            Column("median step", Unit.SECONDS),
            Column("low", Unit.SECONDS),
            Column("high", Unit.SECONDS),
            Column("shortest", Unit.SECONDS, spare=True),
            Column("longest", Unit.SECONDS, spare=True),
        ),
        (_run("before", found.before, found), _run("after", found.after, found)),
        "A step is from the end of the one before to its own. low and high: the spread, "
        "which leaves out a tenth at either end of ten steps and more.",
    )


def _run(name: str, side: Side, found: RunDifference) -> Cells:
    verdict, spread, times = found.verdict, side.spread, side.times
    middle = None
    if verdict is not None:
        middle = verdict.before if side is found.before else verdict.after
    known = spread is not None and verdict is not None
    return (
        name,
        Quantity("devices", len(side.trace.devices)),
        _windows(side.trace),
        Quantity("steps", round(side.per / len(side.trace.devices), 1))
        if verdict is not None
        else Quantity("steps", None, basis=Basis.UNKNOWN),
        seconds("median step", middle),
        seconds("low", spread.low if spread is not None and known else None),
        seconds("high", spread.high if spread is not None and known else None),
        seconds("shortest", min(times) if times and verdict is not None else None),
        seconds("longest", max(times) if times and verdict is not None else None),
    )


def _windows(trace: Trace) -> str:
    return " and ".join(dict.fromkeys(device.windows.chosen.name for device in trace.devices))


def _parts(found: RunDifference) -> Table:
    rows: list[Cells] = [(name, *change_cells(*times)) for name, times in _each_part(found)]
    rows.append((unit_of(found), *change_cells(*found.part(lambda parts: parts.window.length))))
    rows.append(("busy", *change_cells(*found.part(lambda parts: parts.busy))))
    hidden = found.part(lambda parts: parts.hidden_communication)
    rows.append(("hidden communication", *change_cells(*hidden)))
    return Table(
        "parts",
        f"Where {unit_of(found)} goes: the mean of one device",
        change_columns(Column("part")),
        tuple(rows),
        f"Compute, communication, copies, control flow and idle add up to {unit_of(found)}.",
    )


def _same_devices(before: Trace, after: Trace) -> bool:
    names = [[device.name for device in trace.devices] for trace in (before, after)]
    return names[0] == names[1]


def _devices(found: RunDifference, top: int) -> Table:
    """Each device's own mean, for one that became slower than the others."""
    pairs = zip(found.before.trace.devices, found.after.trace.devices, strict=True)
    rows = []
    for one, other in pairs:
        sides = [
            device.parts.busy / (_steps(device) if found.by_step else 1) for device in (one, other)
        ]
        rows.append((one.name, *change_cells(sides[0], sides[1])))
    shown = rows[: top or None]
    left = len(rows) - len(shown)
    return Table(
        "devices",
        f"Busy time of each device, {unit_of(found)}",
        change_columns(Column("device", text=Text.WORD)),
        tuple(shown),
        f"{left:,} more; --top 0 lists all." if left else "",
    )


def _steps(device: DeviceSummary) -> int:
    return len(counted(device.steps, device.windows.chosen))


def _joined(trace: Trace) -> bool:
    return any(device.joined for device in trace.devices)


def _notes(found: RunDifference, comparable: bool, unchanged: Sequence[bool]) -> Iterator[str]:
    before, after = found.before.trace, found.after.trace
    names = [by for by, same in zip(("category", "family", "op"), unchanged, strict=False) if same]
    if names:
        yield f"by {', '.join(names)} nothing changed by more than it varies from step to step"
    for words, of in _FACTS:
        one, other = of(before), of(after)
        if one != other:
            yield f"the runs differ in {words}: {one} before, {other} after"
    counts = found.before.per, found.after.per
    if found.by_step and counts[0] != counts[1]:
        yield (
            f"{counts[0]:,} steps of all devices before and {counts[1]:,} after: the mean of "
            "each is compared"
        )
    if not comparable:
        yield (
            "operations are not compared: the HLO is embedded in one of the runs alone, and "
            "names of instructions shift from compile to compile"
        )
    for name, trace in (("before", before), ("after", after)):
        for note in (*trace.notes, *(note for host in trace.hosts for note in host.notes)):
            yield f"{name}: {note}"


def _chips(trace: Trace) -> str:
    """What the recording says of its devices."""
    return ", ".join(dict.fromkeys(map(_chip, trace.devices)))


def _chip(device: DeviceSummary) -> str:
    said = ("device_vendor", "gpu_device_name", "device_type_string")
    words = [str(device.about[key]) for key in said if key in device.about]
    if "core_count" in device.about:
        words.append(f"with {device.about['core_count']} cores")
    return " ".join((device.kind.value.upper(), *words))


def _sources(trace: Trace) -> str:
    return " and ".join(dict.fromkeys(device.steps.source.value for device in trace.devices))


def _programs(trace: Trace) -> str:
    return " and ".join(dict.fromkeys(device.steps.name or "none" for device in trace.devices))


_FACTS: tuple[tuple[str, Callable[[Trace], str]], ...] = (
    ("their chips", _chips),
    ("their devices", lambda trace: plural(len(trace.devices), "device")),
    ("their windows", _windows),
    ("how steps are known", _sources),
    ("what their steps are of", _programs),
)
