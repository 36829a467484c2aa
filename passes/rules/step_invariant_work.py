"""HS504."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.step_invariance import InvariantCone, StepInvariance
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["step_invariant_work"]

_MODEL = "each branch taken, loops of unknown length run once"
_SHOWN = 4


@rule("HS504", "step-invariant-work", Category.REDUNDANT_WORK)
def step_invariant_work(
    invariance: StepInvariance, ledger: FlopLedger, limits: Limits
) -> Iterator[Finding]:
    """Finds products that come out the same in every step.

    What it does:
        Follows what changes between steps (state, batch, random keys, arguments
        that nothing calls frozen, side effects) through fusions, loops and
        branches. Products that it does not reach depend on frozen arguments,
        closed-over arrays and constants alone. Those that hang together are one
        finding from ``product_flops_share`` (1%) of the program's product FLOPs
        on. An argument is frozen where the step says so
        (``roles={"encoder": "frozen"}``) or where its name does
        (``frozen_encoder``). Without one, and without arrays of constants, there
        is nothing to look for and the rule says that it did not look.

    Why it costs:
        The device computes in every step what it could compute once for all of
        training.

    Example:
            def step(state, batch, frozen_encoder, null_text):
                null = encode(frozen_encoder, null_text)   # the same in every step
                return update(state, batch, null)

    Use instead:
        Compute it before the loop and pass the result:

            null = jax.jit(encode)(frozen_encoder, null_text)
            for batch in batches:
                state = step(state, batch, null)
    """
    total = ledger.total.nominal
    for cone in invariance.cones:
        if total and cone.flops >= limits.product_flops_share * total:
            yield _finding(cone, cone.flops / total, by_names=invariance.by_names, limits=limits)


def _finding(cone: InvariantCone, share: float, *, by_names: bool, limits: Limits) -> Finding:
    dearest = max(cone.products, key=lambda row: row.nominal)
    known = all(
        row.times.exact is not None and row.count.basis is Basis.EXACT for row in cone.products
    )
    basis, model = (Basis.EXACT, None) if known else (Basis.MODELLED, _MODEL)
    cost = Quantity("FLOPs the same in every step", cone.flops, Unit.FLOPS, basis, model)
    moved = (
        Quantity("bytes moved for it", None, Unit.BYTES, Basis.UNKNOWN)
        if cone.moved_bytes is None
        else Quantity("bytes moved for it", cone.moved_bytes, Unit.BYTES, basis, model)
    )
    names = list(cone.names)
    from_ = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        from_ += f" and {len(names) - _SHOWN} more"
    notes = [f"made from {from_}" if names else "made from numbers of the program alone"]
    if dearest.chain:
        notes.append(f"reached through {dearest.chain}")
    if by_names:
        notes.append("which arguments are frozen is guessed from their names")
    many = f"{len(cone.products)} products come" if len(cone.products) > 1 else "a product comes"
    return Finding(
        code="HS504",
        name="step-invariant-work",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share),
        message=f"{many} out the same in every step",
        site=instruction_site(dearest.instruction),
        evidence=(
            cost,
            Quantity("share of product FLOPs", share, Unit.SHARE, basis, model),
            Quantity("launches", cone.launches, basis=basis, model=model),
            moved,
        ),
        cost=cost,
        fix="Compute it once, outside of the step, and pass the result as an argument.",
        notes=tuple(notes),
    )
