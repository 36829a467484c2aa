"""HS906."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.memory_use import LIVE_RANGES
from hloscope.passes.remat import Remat
from hloscope.passes.remat_verdict import LITTLE, RematVerdict
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["remat_without_gain"]


@rule("HS906", "remat-without-gain", Category.MEMORY)
def remat_without_gain(remat: Remat, verdict: RematVerdict, limits: Limits) -> Iterator[Finding]:
    """Finds checkpoints that run products again and spare next to no memory for it.

    What it does:
        Adds up the values that checkpoints compute again and the backward pass
        reads: what would have to be kept without them. Reported where that is
        under 1% of the peak while at least ``product_flops_share`` (1%) of the
        step's products run again.

    Why it costs:
        The time is spent and the memory is not won: what the checkpoint throws
        away is small, or was going to be computed again anyway.

    Example:
            head = jax.checkpoint(lambda h, w: (h @ w).sum(axis=-1))   # keeps one number a row

    Use instead:
        Checkpoint where much is kept: around a layer, with its scores and both
        sides of its MLP, rather than around a product whose result is small.
    """
    if not verdict.useless or verdict.share < limits.product_flops_share:
        return
    row = max(
        (row for region in remat.regions for row in region.products),
        key=lambda row: row.nominal,
        default=None,
    )
    if row is None or remat.rebuilt_bytes is None:
        return
    how = verdict.model
    cost = Quantity("FLOPs run again", verdict.again_flops, Unit.FLOPS, Basis.MODELLED, how)
    yield Finding(
        code="HS906",
        name="remat-without-gain",
        category=Category.MEMORY,
        severity=limits.severity(verdict.share),
        message=f"what runs again spares under {LITTLE:.0%} of the peak",
        site=instruction_site(row.instruction),
        evidence=(
            cost,
            Quantity("share of all products", verdict.share, Unit.SHARE, Basis.MODELLED, how),
            Quantity("bytes spared", remat.rebuilt_bytes, Unit.BYTES, Basis.MODELLED, LIVE_RANGES),
        ),
        cost=cost,
        fix="Take the checkpoint away, or put it around what keeps more.",
    )
