"""Whether the compiler kept a step's rematerialization, and whether it is worth its cost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hloscope.ir.jaxpr_count import JaxprCount
from hloscope.ir.metadata import SourceLocation
from hloscope.passes.flop_gap import Reason
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.jaxpr_gap import JaxprGap
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.remat import Remat
from hloscope.pipeline.analyses import analysis

__all__ = ["BY_LINE", "BY_NAMES", "LITTLE", "RematOutcome", "RematVerdict", "judge_remat"]

BY_LINE = "products matched by line of Python"
BY_NAMES = "the names that JAX gives what it runs again"
"""How it is known what runs again: against the jaxpr, or without one."""

LITTLE = 0.01
"""Share of the peak below which a checkpoint spares nothing to speak of."""

_UNDONE = 0.9  # of what was asked for; what is left then is chance


class RematOutcome(StrEnum):
    """What became of the step's checkpoints."""

    NONE = "none"
    SURVIVED = "survived"
    PARTLY_UNDONE = "partly undone"
    UNDONE = "undone"
    KEPT_ALL = "no products recomputed"
    UNKNOWN = "not known"
    UNNAMED = "no names to tell"


@dataclass(frozen=True, slots=True)
class RematVerdict:
    """What is known of a step's rematerialization as a whole.

    Attributes:
        outcome: What became of it.
        asked_flops: FLOPs of products that the jaxpr asks to be run again, of
            one device; ``None`` without a jaxpr.
        undone_flops: The part of these that XLA merged with the first run.
        undone_at: Lines of Python where that was, as far as they are known.
        again_flops: FLOPs of products that do run again: what was asked for and
            not merged, or without a jaxpr what the names say; with XLA's clones.
        by_names: Whether it is the names that say so.
        share: The same over all of the step's products.
        spared: Bytes that the checkpoints spare over the peak: the values that
            are computed again and not kept. ``None`` where unknown.
        replayed_exchanges: Exchanges that are run again.
        replayed_bytes: Bytes that one device sends again.
    """

    outcome: RematOutcome
    asked_flops: float | None
    undone_flops: float | None
    undone_at: tuple[SourceLocation, ...]
    again_flops: float
    by_names: bool
    share: float
    spared: float | None
    replayed_exchanges: int
    replayed_bytes: int

    @property
    def model(self) -> str:
        """How it is known what runs again."""
        return BY_NAMES if self.by_names else BY_LINE

    @property
    def useless(self) -> bool:
        """Whether it computes again what it would cost next to nothing to keep."""
        return self.share > 0 and self.spared is not None and self.spared < LITTLE

    @property
    def costly(self) -> bool:
        """Whether devices exchange again what they have exchanged before."""
        return self.replayed_exchanges > 0


@analysis
def judge_remat(
    remat: Remat,
    ledger: FlopLedger,
    jaxpr: JaxprCount | None,
    gap: JaxprGap | None,
    use: MemoryUse | None,
) -> RematVerdict:
    """Compare what the jaxpr asks to be run again with what is.

    Names alone prove little: where XLA merges the second run of a product with
    the first, the one that is left may carry either's name. Against the jaxpr
    products are matched by line of Python and size, so that what was merged is
    missing there.
    """
    asked = undone = None
    where: tuple[SourceLocation, ...] = ()
    if jaxpr is not None and gap is not None:
        asked = jaxpr.recomputed.nominal / gap.devices
        merged = [part for part in gap.gap.parts if part.reason is Reason.REMAT_UNDONE]
        undone = float(-sum(part.flops for part in merged))
        where = tuple(place for part in merged for place in part.places)
    total = ledger.total.nominal
    by_names = asked is None or undone is None
    again = remat.flops if asked is None or undone is None else asked - undone
    again += remat.clone_flops
    spared = None
    if remat.rebuilt_bytes is not None and use is not None and use.peak:
        spared = remat.rebuilt_bytes / use.peak
    exchanges = [exchange for region in remat.regions for exchange in region.exchanges]
    return RematVerdict(
        _outcome(remat, asked, undone),
        asked,
        undone,
        where,
        again,
        by_names,
        again / total if total else 0.0,
        spared,
        len(exchanges),
        sum((e.collective.wire_bytes or 0) * e.collective.times.nominal for e in exchanges),
    )


def _outcome(remat: Remat, asked: float | None, undone: float | None) -> RematOutcome:
    if asked is None or undone is None:
        if not remat.named:
            return RematOutcome.UNNAMED
        if not remat.asked and not remat.regions:
            return RematOutcome.NONE
        return RematOutcome.UNKNOWN if remat.regions else RematOutcome.KEPT_ALL
    if not asked:
        return RematOutcome.KEPT_ALL if remat.asked else RematOutcome.NONE
    if undone >= _UNDONE * asked:
        return RematOutcome.UNDONE
    return RematOutcome.PARTLY_UNDONE if undone else RematOutcome.SURVIVED
