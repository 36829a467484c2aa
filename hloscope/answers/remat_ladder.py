"""Rematerialization policies side by side, and the cheapest one that fits the chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hloscope import units
from hloscope.answers.host_offload import COPIES
from hloscope.answers.remat_names import unmatched_names
from hloscope.answers.remat_savings import peak_spared
from hloscope.chips import Chip
from hloscope.errors import HloscopeError
from hloscope.passes.host_offload import HostOffload
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import LIVE_RANGES, MemoryUse
from hloscope.passes.remat import Remat
from hloscope.passes.remat_verdict import LITTLE, RematVerdict
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
        kept_bytes: Residuals between forward and backward, on the device.
        offloaded_bytes: What waits in the host's memory.
        again_flops: FLOPs that run again.
        launches: Instructions that run again, all runs together.
        share: Part of all its products.
        unmatched: Which of its names match nothing, in a sentence.
        model: How it is known what runs again.
        seconds: What its compile took.
    """

    policy: str
    use: MemoryUse
    kept_bytes: int
    offloaded_bytes: int
    again_flops: float
    launches: int
    share: float
    unmatched: str
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
    rungs: dict[str, _Rung] = {}
    failures: dict[str, str] = {}
    memory = chip.memory_bytes if chip is not None else None
    for policy in dict.fromkeys(policies):
        try:
            session, seconds = open_session(policy)
            rungs[policy] = _rung(policy, session, seconds)
        except (HloscopeError, AnalysisFailedError) as error:
            failures[policy] = error.message if isinstance(error, HloscopeError) else str(error)
    known = list(rungs.values())
    return Report(
        "remat",
        subject,
        header,
        tables=(_Table(rungs, failures, memory).table(),),
        summary=_summary(known, chip, memory),
        notes=tuple(_notes(known, rungs.get(_WITHOUT))),
        failures=tuple(f"{policy}: {message}" for policy, message in failures.items()),
    )


_WITHOUT = "none"


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows, and which columns they have something for.

    Attributes:
        rungs: By policy.
        failures: Why a policy could not be compiled.
        memory: Bytes of the chip.
    """

    rungs: Mapping[str, _Rung]
    failures: Mapping[str, str]
    memory: int | None

    def table(self) -> Table:
        order = [*self.rungs, *self.failures]
        columns = [
            Column("policy"),
            Column("peak", Unit.BYTES),
            *([Column("peak spared", Unit.BYTES, spare=True)] if self._plain else []),
            Column("temporaries", Unit.BYTES, spare=self._offloads),
            Column("kept", Unit.BYTES),
            *([Column("kept spared", Unit.BYTES, spare=True)] if self._plain else []),
            *([Column("offloaded", Unit.BYTES)] if self._offloads else []),
            Column("FLOPs again", Unit.FLOPS),
            Column("share", Unit.SHARE, spare=self._offloads),
            Column("compile", Unit.SECONDS, spare=True),
            Column("fits"),
        ]
        note = "kept: what crosses from the forward into the backward pass. share: of all products."
        if self._plain:
            note += f" spared: against {_WITHOUT}."
        return Table(
            "policies",
            "Policies, of one device",
            tuple(columns),
            tuple(tuple(self._row(policy, columns)) for policy in order),
            note,
        )

    @property
    def _plain(self) -> _Rung | None:
        return self.rungs.get(_WITHOUT)

    @property
    def _offloads(self) -> bool:
        return any(rung.offloaded_bytes for rung in self.rungs.values())

    def _row(self, policy: str, columns: Sequence[Column]) -> Iterator[str | Quantity]:
        yield policy
        cells = self._cells(self.rungs[policy]) if policy in self.rungs else {}
        for column in columns[1:-1]:
            failed = f"failed: {self.failures.get(policy, '')}"
            yield cells.get(
                column.title, Quantity(failed, None, column.unit or Unit.COUNT, Basis.UNKNOWN)
            )
        yield self._fits(policy)

    def _cells(self, rung: _Rung) -> Mapping[str, Quantity]:
        def size(name: str, value: int, model: str = LIVE_RANGES) -> Quantity:
            return Quantity(name, value, Unit.BYTES, Basis.MODELLED, model)

        plain = self._plain or rung
        cells = [
            size("peak", rung.use.peak),
            size("peak spared", plain.use.peak - rung.use.peak),
            size("temporaries", rung.use.temporaries.get(Space.DEVICE, 0)),
            size("kept", rung.kept_bytes),
            size("kept spared", plain.kept_bytes - rung.kept_bytes),
            size("offloaded", rung.offloaded_bytes, COPIES),
            Quantity("FLOPs again", rung.again_flops, Unit.FLOPS, Basis.MODELLED, rung.model),
            Quantity("share", rung.share, Unit.SHARE, Basis.MODELLED, rung.model),
            Quantity("compile", rung.seconds, Unit.SECONDS)
            if rung.seconds is not None
            else Quantity("compile", None, Unit.SECONDS, Basis.UNKNOWN),
        ]
        return {cell.name: cell for cell in cells}

    def _fits(self, policy: str) -> str:
        rung = self.rungs.get(policy)
        if rung is None:
            return "not compiled"
        if self.memory is None:
            return "unknown"
        return "yes" if rung.use.peak <= self.memory else "no"


def _notes(rungs: Sequence[_Rung], plain: _Rung | None) -> Iterator[str]:
    """Names that match nothing, and policies that spare next to nothing."""
    for rung in rungs:
        if rung.unmatched:
            yield f"{rung.policy}: {rung.unmatched}"
        if plain is None or rung is plain or not rung.again_flops:
            continue
        if peak_spared(rung.use.peak, plain.use.peak) < LITTLE:
            yield (
                f"{rung.policy}: spares under {units.share(LITTLE)} of the peak of "
                f"{plain.policy}: it is not worth its time"
            )


def _rung(policy: str, session: Session, seconds: float | None) -> _Rung:
    verdict, remat = session.get(RematVerdict), session.get(Remat)
    return _Rung(
        policy,
        session.get(MemoryUse),
        session.get(Residuals).on_device,
        session.get(HostOffload).bytes_out,
        verdict.again_flops,
        sum(region.launches for region in remat.regions) + len(remat.clones),
        verdict.share,
        unmatched_names(session),
        verdict.model,
        seconds,
    )


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
