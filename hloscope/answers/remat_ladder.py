"""Rematerialization policies side by side, and the cheapest one that fits the chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hloscope import units
from hloscope.chips import Chip
from hloscope.errors import HloscopeError
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import LIVE_RANGES, MemoryUse
from hloscope.passes.remat import Remat
from hloscope.passes.remat_verdict import RematVerdict
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Unit
from hloscope.pipeline.session import AnalysisFailedError, Session

__all__ = ["compare_policies"]


@dataclass(frozen=True, slots=True)
class _Rung:
    """One policy's program.

    Attributes:
        policy: The policy.
        use: Its memory.
        kept_bytes: Residuals between forward and backward.
        again_flops: FLOPs that run again.
        launches: Instructions that run again, all runs together.
        share: Part of all its products.
        model: How it is known what runs again.
        seconds: What its compile took.
    """

    policy: str
    use: MemoryUse
    kept_bytes: int
    again_flops: float
    launches: int
    share: float
    model: str
    seconds: float | None


def compare_policies(
    policies: Sequence[str],
    open_session: Callable[[str], tuple[Session, float | None]],
    header: Mapping[str, str | Quantity],
    chip: Chip | None,
    subject: str,
) -> Report:
    """Compile each policy and put memory and recomputation side by side.

    Args:
        policies: Values of the ``remat`` option, in the order of the rows.
        open_session: Captures one; gives its session and its compile seconds.
        header: Facts that hold for all of them.
        chip: The chip that they should fit.
        subject: What is compared, in the user's words.

    Returns:
        A report whose ``failures`` say which policies could not be compiled; such
        as ran out of the chip's memory are rows with what is known of them.
    """
    rungs: list[_Rung] = []
    rows: list[tuple[str | Quantity, ...]] = []
    failures = []
    memory = chip.memory_bytes if chip is not None else None
    for policy in policies:
        try:
            session, seconds = open_session(policy)
            rung = _rung(policy, session, seconds)
        except (HloscopeError, AnalysisFailedError) as error:
            message = error.message if isinstance(error, HloscopeError) else str(error)
            failures.append(f"{policy}: {message}")
            rows.append((policy, *_unknown(message), "not compiled"))
        else:
            rungs.append(rung)
            rows.append(_row(rung, memory))
    table = Table(
        "policies",
        "Policies, of one device",
        (
            Column("policy"),
            Column("peak", Unit.BYTES),
            Column("temporaries", Unit.BYTES),
            Column("kept", Unit.BYTES),
            Column("FLOPs again", Unit.FLOPS),
            Column("share", Unit.SHARE),
            Column("compile", Unit.SECONDS),
            Column("fits"),
        ),
        tuple(rows),
        "kept: what crosses from the forward into the backward pass. share: of all products.",
    )
    return Report(
        "remat",
        subject,
        header,
        tables=(table,),
        summary=_summary(rungs, chip, memory),
        failures=tuple(failures),
    )


def _rung(policy: str, session: Session, seconds: float | None) -> _Rung:
    verdict, remat = session.get(RematVerdict), session.get(Remat)
    return _Rung(
        policy,
        session.get(MemoryUse),
        session.get(Residuals).total,
        verdict.again_flops,
        sum(region.launches for region in remat.regions) + len(remat.clones),
        verdict.share,
        verdict.model,
        seconds,
    )


def _row(rung: _Rung, memory: int | None) -> tuple[str | Quantity, ...]:
    use = rung.use

    def size(name: str, value: int) -> Quantity:
        return Quantity(name, value, Unit.BYTES, Basis.MODELLED, LIVE_RANGES)

    fits = "unknown" if memory is None else "yes" if use.peak <= memory else "no"
    return (
        rung.policy,
        size("peak", use.peak),
        size("temporaries", use.temporaries.get(Space.DEVICE, 0)),
        size("kept", rung.kept_bytes),
        Quantity("FLOPs again", rung.again_flops, Unit.FLOPS, Basis.MODELLED, rung.model),
        Quantity("share", rung.share, Unit.SHARE, Basis.MODELLED, rung.model),
        Quantity("compile", rung.seconds, Unit.SECONDS)
        if rung.seconds is not None
        else Quantity("compile", None, Unit.SECONDS, Basis.UNKNOWN),
        fits,
    )


def _unknown(reason: str) -> tuple[Quantity, ...]:
    kinds = (Unit.BYTES, Unit.BYTES, Unit.BYTES, Unit.FLOPS, Unit.SHARE, Unit.SECONDS)
    return tuple(Quantity(f"failed: {reason}", None, unit, Basis.UNKNOWN) for unit in kinds)


def _summary(rungs: Sequence[_Rung], chip: Chip | None, memory: int | None) -> str:
    if not rungs:
        return "None of the policies could be compiled."
    if chip is None or memory is None:
        least = min(rungs, key=lambda rung: rung.use.peak)
        size = units.byte_size(least.use.peak)
        return f"Least memory: {least.policy}, {size}. No chip's memory is known to fit it into."
    fitting = [rung for rung in rungs if rung.use.peak <= memory]
    if not fitting:
        least = min(rungs, key=lambda rung: rung.use.peak)
        more = units.byte_size(least.use.peak - memory)
        return f"None fits {chip.name}: {least.policy} takes least and needs {more} more."
    best = min(fitting, key=lambda rung: (rung.again_flops, rung.launches, rung.use.peak))
    again = "runs nothing again"
    if best.launches:
        again = f"runs {units.share(best.share)} of its products again"
    room = units.byte_size(memory - best.use.peak)
    return f"Cheapest that fits {chip.name}: {best.policy}, which {again}; {room} to spare."
