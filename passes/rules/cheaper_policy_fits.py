"""HS907."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.chips import Chip
from hloscope.errors import Unavailable
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.ledger import FlopRow
from hloscope.passes.heap_block import HeapBlock, needed_memory
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.remat import Remat
from hloscope.passes.remat_verdict import RematVerdict
from hloscope.passes.roofline import Roofline
from hloscope.passes.step_parts import is_replay
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["cheaper_policy_fits"]

_KEPT = "values computed again, by live ranges and by the results of products"
_ROOFLINE = "the roofline"


@rule("HS907", "cheaper-policy-fits", Category.MEMORY)
def cheaper_policy_fits(
    remat: Remat,
    verdict: RematVerdict,
    use: MemoryUse,
    block: HeapBlock | None,
    chip: Chip,
    roofline: Roofline | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds rematerialization that the chip has memory enough to do without.

    What it does:
        Takes a step whose checkpoints run products again, at least
        ``product_flops_share`` (1%) of all, and adds to the memory that it needs
        what would have to be kept instead: the values computed again that the
        backward pass reads, and at least the results of the products that run
        again, over all layers at once. Reported where all that fits
        ``filled_share`` (80%) of the chip's memory. How many FLOPs that spares is
        counted, how many seconds by the roofline at the chip's peaks. Only a
        scheduled module can be looked at, and the chip has to be known.

    Why it costs:
        Recomputing every layer runs a third more FLOPs than a step without it. It
        buys memory; where nobody needs the memory it buys nothing. A policy that
        is right for the large model, or for a smaller chip, stays in the code
        when the model or the share of it that one device holds shrinks.

    Example:
            layer = jax.checkpoint(layer)          # of 80 GB, 9 are used at the peak

    Use instead:
        Keep the products' results, and compute what is cheap again:

            layer = jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable)

        or take the checkpoint away. Or spend the memory on a larger batch, if
        that is what the recomputation is for.
    """
    if chip.memory_bytes is None:
        raise Unavailable(f"the memory of {chip.name} is not known")
    # XLA's own clones are no choice of the user's, and a sign that memory is short.
    again = verdict.again_flops - remat.clone_flops
    products = [row for region in remat.regions for row in region.products]
    if again <= 0 or verdict.useless or not products or remat.rebuilt_bytes is None:
        return
    share = verdict.share * again / verdict.again_flops
    kept = max(remat.rebuilt_bytes, sum(map(_result_bytes, products)))
    needed = needed_memory(use, block)
    if share < limits.product_flops_share:
        return
    if needed + kept > limits.filled_share * chip.memory_bytes:
        return
    cost = Quantity("FLOPs run again", again, Unit.FLOPS, Basis.MODELLED, verdict.model)
    evidence = [
        cost,
        Quantity("share of all products", share, Unit.SHARE, cost.basis, cost.model),
        *_seconds(roofline),
        Quantity("bytes to keep instead", kept, Unit.BYTES, Basis.MODELLED, _KEPT),
        Quantity("needed so far", needed, Unit.BYTES, use.basis, use.model),
        Quantity("memory of the chip", chip.memory_bytes, Unit.BYTES),
    ]
    yield Finding(
        code="HS907",
        name="cheaper-policy-fits",
        category=Category.MEMORY,
        severity=min(limits.severity(share), Severity.WARNING, key=lambda one: one.rank),
        message=f"products run again whose results {chip.name} has room to keep",
        site=instruction_site(max(products, key=lambda row: row.nominal).instruction),
        evidence=tuple(evidence),
        cost=cost,
        fix="Give jax.checkpoint a policy that keeps products (dots_saveable), or take it away; "
        "or use the free memory for a larger batch.",
    )


def _result_bytes(row: FlopRow) -> int:
    """Bytes of a product's results over all its runs: what ``dots_saveable`` keeps of it."""
    shape = row.instruction.shape
    if shape.is_tuple and shape.elements:
        shape = shape.elements[0]  # a library call's workspace is in the tuple too
    return shape.bytes * row.times.nominal


def _seconds(roofline: Roofline | None) -> Iterator[Quantity]:
    """The time of the products that are launched again, where the chip's peaks are known."""
    if roofline is None:
        return
    launched = [
        row for row in roofline.rows if is_replay(row.instruction) and row.flops and row.compute
    ]
    seconds = sum((row.compute or 0.0) * row.times.nominal for row in launched)
    if launched and seconds:
        yield Quantity("seconds at the peak", seconds, Unit.SECONDS, Basis.MODELLED, _ROOFLINE)
