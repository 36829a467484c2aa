"""What a policy spares, measured: one step with it and without it, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloscope import units
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import LIVE_RANGES, MemoryUse
from hloscope.passes.remat_verdict import LITTLE, RematVerdict
from hloscope.passes.residuals import Residual, Residuals
from hloscope.passes.scopes import collapse_scope
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Table, Text, Unit
from hloscope.pipeline.session import Session

__all__ = ["Savings", "peak_spared"]

_SCOPE_DEPTH = 3


def peak_spared(peak: int, without: int) -> float:
    """By which share of the peak without a policy the peak with it is lower."""
    return (without - peak) / without if without else 0.0


_Place = tuple[str, str, str]
"""What tells a residual in both programs: scope, primitive and line of what computed it."""


@dataclass(frozen=True, slots=True)
class Savings:
    """Two programs of one step.

    Attributes:
        without: The one without the policy, and the user's words for it.
        session: The one with it.
    """

    without: tuple[Session, str]
    session: Session

    @property
    def spared(self) -> float:
        """By which share of its peak without the policy the step takes less."""
        before, after = (session.get(MemoryUse).peak for session in self._both)
        return peak_spared(after, before)

    @property
    def _both(self) -> tuple[Session, Session]:
        return self.without[0], self.session

    def said(self) -> str:
        """What the policy spares and costs against the step without it, in a sentence."""
        before, after = (session.get(MemoryUse).peak for session in self._both)
        kept = [session.get(Residuals).on_device for session in self._both]
        more = units.byte_size(abs(before - after))
        lower = "no lower" if after >= before else f"{more} ({units.share(self.spared)}) lower"
        if after > before:
            lower = f"{more} higher"
        text = f"Against {self.without[1]} the peak is {lower}"
        if kept[0] != kept[1]:
            less = "less" if kept[0] > kept[1] else "more"
            text += f", and {units.byte_size(abs(kept[0] - kept[1]))} {less} cross to the backward"
        text += "."
        if self.session.get(RematVerdict).share > 0 and self.spared < LITTLE:
            text += f" That is under {units.share(LITTLE)} of the peak: it is not worth its time."
        return text

    def tables(self, top: int) -> Iterator[Table]:
        """Figures of both programs, and the residuals that differ between them.

        Args:
            top: How many places are listed at most; 0 for all.
        """
        yield self._figures()
        if places := self._places():
            yield self._crossing(places, top)

    def _figures(self) -> Table:
        uses = [session.get(MemoryUse) for session in self._both]
        kept = [session.get(Residuals).on_device for session in self._both]
        verdicts = [session.get(RematVerdict) for session in self._both]
        temporaries = [use.temporaries.get(Space.DEVICE, 0) for use in uses]
        again = [verdict.again_flops for verdict in verdicts]

        def row(
            name: str, both: Sequence[float], unit: Unit, model: str | None
        ) -> tuple[str | Quantity, ...]:
            before, after = both
            return (
                name,
                Quantity(name, before, unit, Basis.MODELLED, model),
                Quantity(name, after, unit, Basis.MODELLED, model),
                Quantity(f"{name} spared", before - after, unit, Basis.MODELLED, model),
            )

        rows = (
            row("peak", [use.peak for use in uses], Unit.BYTES, uses[1].model),
            row("temporaries", temporaries, Unit.BYTES, LIVE_RANGES),
            row("kept", kept, Unit.BYTES, LIVE_RANGES),
            row("FLOPs again", again, Unit.FLOPS, verdicts[1].model),
        )
        return Table(
            "spared",
            f"Against {self.without[1]}, of one device",
            (Column(""), Column("without"), Column("with"), Column("spared")),
            rows,
        )

    def _places(self) -> list[tuple[_Place, int, int]]:
        """Bytes of both programs by place, where they differ; most bytes spared first."""
        sums: dict[_Place, list[int]] = {}
        for number, session in enumerate(self._both):
            for residual in session.get(Residuals).residuals:
                if residual.buffer.space is Space.HOST:
                    continue
                sums.setdefault(_place(residual), [0, 0])[number] += residual.buffer.size
        differing = [
            (place, before, after) for place, (before, after) in sums.items() if before != after
        ]
        return sorted(differing, key=lambda each: (each[2] - each[1], each[0]))

    def _crossing(self, places: list[tuple[_Place, int, int]], top: int) -> Table:
        shown = places[:top] if top else places
        left = places[len(shown) :]
        note = ""
        if left:
            rest = units.byte_size(sum(before - after for _, before, after in left))
            note = f"and {plural(len(left), 'more place')}, {rest}; --top 0 lists all"

        def size(name: str, value: int) -> Quantity:
            return Quantity(name, value, Unit.BYTES, Basis.MODELLED, LIVE_RANGES)

        return Table(
            "no longer kept",
            "What crosses from the forward into the backward pass without it and with it",
            (
                Column("scope", text=Text.PATH),
                Column("made by"),
                Column("line", spare=True),
                Column("without", Unit.BYTES),
                Column("with", Unit.BYTES),
                Column("spared", Unit.BYTES),
            ),
            tuple(
                (
                    *place,
                    size("without", before),
                    size("with", after),
                    size("spared", before - after),
                )
                for place, before, after in shown
            ),
            note,
        )


def _place(residual: Residual) -> _Place:
    origin = residual.origin
    if residual.is_argument:
        return "(copies of arguments)", "-", "-"
    name = origin.op_name.partition(";")[0]
    location = origin.location
    return (
        collapse_scope(name, _SCOPE_DEPTH) or "(no scope)",
        name.rpartition("/")[2] or origin.opcode,
        f"{location.file}:{location.line}" if location is not None else "-",
    )
