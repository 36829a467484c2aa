"""Kernels as reports: what there is, and what a target's compiler makes of one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set

from hloscope.answers.flop_answers import find_answers
from hloscope.answers.kernel_route import memory_of, read_route
from hloscope.chips import ChipKind, Target
from hloscope.errors import HloscopeError
from hloscope.kernels import registry
from hloscope.kernels.case import Case, Family
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.inputs import XlaMemory
from hloscope.pipeline.session import AnalysisFailedError, Session

__all__ = ["list_kernels", "report_routes", "status_on"]

_NOTE = (
    "runs: on this machine. compiles: for a chip that is not here; on a machine that has it, it "
    "runs. interpreted: only its numbers can be had there. no: what it does not take."
)


def list_kernels(targets: Sequence[Target], blockers: Mapping[str, str]) -> Report:
    """Every implementation of every family, with what each target makes of it.

    Args:
        targets: What to say it for.
        blockers: Why a target cannot be compiled for at all now, or why something
            that a library is needed for cannot: by target, or ``target/implementation``.
    """
    families = [registry.get(name) for name in registry.names()]
    rows = []
    below: dict[str, dict[str, list[str]]] = {}
    for family in families:
        cases = registry.cases_of(family, sizes={}, settings={})
        for case in cases:
            said = [status_on(case, target, blockers) for target in targets]
            words = [status for status, _ in said]
            reasons: dict[str, list[str]] = {}
            for target, (status, reason) in zip(targets, said, strict=True):
                if status == "no":
                    reasons.setdefault(reason, []).append(target.text)
            why = "; ".join(f"{', '.join(where)}: {reason}" for reason, where in reasons.items())
            rows.append((family.name, case.implementation.name, *words, why))
            for reason in reasons:
                below.setdefault(reason, {}).setdefault(family.name, []).append(
                    case.implementation.name
                )
    columns = (
        Column("family", text=Text.WORD),
        Column("implementation", text=Text.WORD),
        *(Column(target.text) for target in targets),
        Column("why not", drawn=False),
    )
    wide = {blockers[target.text] for target in targets if target.text in blockers}
    note = "\n".join([_NOTE, *(_why(reason, below[reason], wide) for reason in below)])
    tables = [Table("kernels", "Kernels", columns, tuple(rows), note)]
    tables += [_settings(family) for family in families]
    count = sum(len(family.implementations) for family in families)
    summary = f"{plural(count, 'implementation')} of {len(families)} families of kernels."
    return Report("kernels", "", {}, tables=tuple(tables), summary=summary)


def _why(reason: str, implementations: Mapping[str, Sequence[str]], wide: Set[str]) -> str:
    """One reason below the list, with all those that are not taken for it.

    Args:
        reason: Why not.
        implementations: By family.
        wide: Reasons that hold for a target, whatever is compiled.
    """
    if reason in wide:
        return f"no: {reason} (everything else)"
    those = "; ".join(f"{family} {', '.join(own)}" for family, own in implementations.items())
    return f"no: {reason} ({those})"


def status_on(case: Case, target: Target, blockers: Mapping[str, str]) -> tuple[str, str]:
    """``runs``, ``compiles``, ``interpreted`` or ``no``, and the reason if not simply that."""
    one = case.implementation
    if target.is_local:
        # What is attached is known in the worker only: it is tried.
        refused = one.refused(case, None)
        return ("no", refused) if refused else ("runs", "")
    kind = target.chip.kind if target.chip is not None else ChipKind.CPU
    reason = one.unsupported(case, target.chip, kind)
    if reason is not None:
        refused = one.refused(case, target.chip)
        if one.interpreted and kind is ChipKind.CPU and refused is None:
            return "interpreted", reason
        return "no", reason
    missing = blockers.get(target.text) or blockers.get(f"{target.text}/{one.name}")
    if missing:
        return "no", missing
    return ("runs" if kind is ChipKind.CPU else "compiles"), ""


def _settings(family: Family) -> Table:
    sizes = [
        (f"{one.letter}{one.default}" if one.like is None else one.letter, "size", one.name)
        for one in family.sizes
    ]
    settings = [(f"{one.name}={one.default:g}", "setting", one.help) for one in family.settings]
    ways = [(one.name, "implementation", one.help) for one in family.implementations]
    return Table(
        f"takes.{family.name}",
        f"{family.name}: {family.title}",
        (Column("name", text=Text.WORD), Column("kind"), Column("what it is")),
        (*sizes, *settings, *ways),
    )


def report_routes(
    cases: Sequence[Case],
    target: Target,
    open_session: Callable[[Case], Session],
    blockers: Mapping[str, str],
) -> Report:
    """Compile each implementation of a family for a target and say what became of it.

    Args:
        cases: One for each implementation, of one shape.
        target: What they are compiled for.
        open_session: Captures one.
        blockers: As for :func:`list_kernels`.

    Returns:
        A report in which what the target does not take is a row with the reason.
    """
    rows: list[tuple[str | Quantity, ...]] = []
    calls: list[tuple[str | Quantity, ...]] = []
    compiled: list[Case] = []
    for case in cases:
        name = case.implementation.name
        status, reason = status_on(case, target, blockers)
        if status in ("no", "interpreted"):
            said = f"unsupported: {reason}"
            if status == "interpreted":
                said = (
                    f"not compiled for {target.text}: {reason}; bench --interpret runs its numbers"
                )
            rows.append((name, *_unknown(reason), said))
            continue
        try:
            session = open_session(case)
            route = read_route(session)
            flops = find_answers(session, "full").ours
            memory = session.find(XlaMemory)
        except (HloscopeError, AnalysisFailedError) as error:
            said = _first_line(error)
            refused = _refused(said)
            verdict = f"failed: {said}" if refused is None else f"unsupported: {refused}"
            rows.append((name, *_unknown(refused or said), verdict))
            continue
        compiled.append(case)
        temporaries, peak = memory_of(None if memory is None else memory.values)
        rows.append((name, flops, temporaries, peak, route.launches, route.words))
        calls += [
            (name, call, Quantity("calls", count)) for call, count in sorted(route.calls.items())
        ]
    columns = (
        Column("implementation", text=Text.WORD),
        Column("products", Unit.FLOPS),
        Column("temporaries", Unit.BYTES),
        Column("peak", Unit.BYTES, spare=True),
        Column("kernels", Unit.COUNT),
        Column("route"),
    )
    first = cases[0]
    tables = [Table("routes", "What the compiler made of each", columns, tuple(rows))]
    if calls:
        heads = (
            Column("implementation", text=Text.WORD),
            Column("custom call"),
            Column("calls", Unit.COUNT),
        )
        tables.append(Table("calls", "Custom calls", heads, tuple(calls)))
    header: dict[str, str | Quantity] = {
        "target": target.text,
        "shape": first.shape,
        "dtype": first.dtype,
        "direction": first.direction.value,
    }
    if target.chip is not None and target.chip.caveat:
        header["caveat"] = target.chip.caveat
    count = plural(len(compiled), "implementation")
    summary = f"{count} of {len(cases)} compiled for {target.text}."
    notes = tuple(
        f"hloscope audit, memory, draw and the others take kernel:{case.text} as their SOURCE"
        for case in compiled[:1]
    )
    return Report(
        "kernels", first.family.name, header, tables=tuple(tables), summary=summary, notes=notes
    )


def _first_line(error: Exception) -> str:
    """What went wrong in one line: the last of a traceback, which has the compiler's words."""
    if isinstance(error, HloscopeError):
        lines = [line.strip() for line in (error.detail or "").splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if "Error" in line), "")
        return f"{error.message}: {last}" if last else error.message
    return str(error)


_REFUSALS = (
    # What a kernel says of a case that it does not take.
    (r"NotImplementedError: (.+)", r"\1"),
    # JAX 0.12 knows GPUs by their names: its error for others speaks of those attached.
    (r"No supported GPU devices found", "Pallas in this JAX does not know the card"),
    (
        r"Shared memory size limit exceeded: requested (\d+), available: (\d+)",
        r"it wants \1 bytes of shared memory, and the chip has \2",
    ),
    (r"CompileTimeScopedVmemOom", "it wants more vector memory (VMEM) than a kernel may have"),
)


def _refused(said: str) -> str | None:
    """Why a kernel does not take what was asked, if that is what a failure says."""
    for pattern, words in _REFUSALS:
        match = re.search(pattern, said)
        if match is not None:
            return match.expand(words)
    return None


def _unknown(reason: str) -> tuple[Quantity, ...]:
    kinds = (Unit.FLOPS, Unit.BYTES, Unit.BYTES, Unit.COUNT)
    return tuple(Quantity(reason, None, unit, Basis.UNKNOWN) for unit in kinds)
