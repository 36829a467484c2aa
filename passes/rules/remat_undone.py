"""HS905."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.remat_verdict import BY_LINE, RematVerdict
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Site, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["remat_undone"]


@rule("HS905", "remat-undone", Category.MEMORY)
def remat_undone(verdict: RematVerdict, limits: Limits) -> Iterator[Finding]:
    """Finds checkpoints that the compiler merged with the computation they repeat.

    What it does:
        Holds the products that ``jax.checkpoint`` asks to be run again against
        those of the optimized HLO, by line of Python and size. Where the second
        run of a product is missing XLA found that it equals the first and kept
        the first's result. From ``product_flops_share`` (1%) of what was asked
        for on.

    Why it costs:
        What is merged has to live from the forward into the backward pass after
        all: the checkpoint spares no memory.

    Example:
            block = jax.checkpoint(block, prevent_cse=False)
            for w in weights:                       # no loop in the compiled program
                x = block(x, w)

    Use instead:
        Leave ``prevent_cse`` on outside of a scan:

            block = jax.checkpoint(block)
            for w in weights:
                x = block(x, w)

        Some backends merge across that barrier too (CPUs in JAX 0.10 do). In a
        scan over the layers the loop itself keeps the two runs apart.
    """
    asked, undone = verdict.asked_flops, verdict.undone_flops
    if not asked or not undone or undone < limits.product_flops_share * asked:
        return
    first = next(iter(verdict.undone_at), None)
    cost = Quantity("FLOPs merged", undone, Unit.FLOPS, Basis.MODELLED, BY_LINE)
    share = undone / asked
    yield Finding(
        code="HS905",
        name="remat-undone",
        category=Category.MEMORY,
        severity=limits.severity(share),
        message="what a checkpoint should compute again is kept instead",
        site=Site(file=first.file, line=first.line) if first is not None else Site(),
        evidence=(
            cost,
            Quantity("of those asked for", share, Unit.SHARE, Basis.MODELLED, BY_LINE),
        ),
        cost=cost,
        fix="Leave prevent_cse=True, its default, outside of a scan; where it is on already, scan "
        "over the layers.",
        notes=tuple(f"merged at {place}" for place in verdict.undone_at),
    )
