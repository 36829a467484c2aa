"""HS502."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.chips import Chip, ChipKind
from hloscope.passes.execution import Execution
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.masked_products import MaskedProduct, MaskedProducts
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["dense_ragged_dot"]

_MODEL = "each row needs the groups that are its own"
_ONCE = "; each branch taken, loops of unknown length run once"


@rule("HS502", "dense-ragged-dot", Category.REDUNDANT_WORK)
def dense_ragged_dot(
    masked: MaskedProducts,
    ledger: FlopLedger,
    execution: Execution,
    chip: Chip | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds products of every row with every group's weights, of which a mask leaves few.

    What it does:
        Looks for products of which one side is a masked copy of the rows for each group:
        ``select(start <= position < end, rows, 0)``, as JAX writes ``jax.lax.ragged_dot``
        on CPUs, XLA on GPUs, and both for the gradient of the weights. And for experts
        that all run on all tokens: products in a batch of groups whose result is weighed
        by ``one_hot(choice, groups)``, and those in such a batch of as many rows and weights
        before and behind them. The FLOPs of the groups that a row belongs to are what a grouped
        product needs; the rest multiplies zeros, or is multiplied by zero. It is summed
        by source line, and listed from ``product_flops_share`` (1%) of the program's
        product FLOPs on. Grouped kernels, and products that a TPU's compiler marks as
        ragged, are not found, and neither are mixtures in which every weight counts.
        Masked copies themselves move through memory besides.

    Why it costs:
        With eight experts, of which a row takes one, seven eighths of the multiplications
        are for nothing, and copied rows are copied eight times. The more experts, the more
        is lost: what a mixture of experts is meant to save is all spent again.

    Example:
            out = jax.lax.ragged_dot(tokens, experts, group_sizes)   # on a GPU: dense

    Use instead:
        A grouped kernel: on a TPU ``ragged_dot`` forward or Pallas' megablox ``gmm``; on a
        GPU a Pallas or Triton grouped product. Where each expert takes a fixed number of
        tokens, a batched product over gathered tokens needs no mask:

            slots = tokens[routing]                                  # [experts, capacity, d]
            out = jnp.einsum("ecd,edf->ecf", slots, experts)
    """
    total = ledger.total.nominal
    lines: dict[object, list[MaskedProduct]] = {}
    for product in (*masked.rows, *masked.weighed):
        location = product.row.instruction.location
        place = (location.file, location.line) if location else product.row.instruction.op_name
        # TPU compilers drop the names of some; those are one finding together.
        lines.setdefault(place, []).append(product)
    for products in lines.values():
        dense = sum(product.row.nominal for product in products)
        wasted = dense - sum(product.useful_flops for product in products)
        if total and wasted >= limits.product_flops_share * total:
            yield _finding(products, wasted, dense, total, execution, chip, limits)


def _finding(
    products: Sequence[MaskedProduct],
    wasted: int,
    dense: int,
    total: int,
    execution: Execution,
    chip: Chip | None,
    limits: Limits,
) -> Finding:
    worst = max(products, key=lambda product: product.row.nominal)
    exact = all(product.row.times.exact is not None for product in products)
    model = _MODEL if exact else _MODEL + _ONCE
    cost = Quantity("FLOPs on zeros", wasted, Unit.FLOPS, Basis.MODELLED, model)
    notes = [f"largest: {worst.row.instruction.name}, masked by {worst.mask.name}"]
    if worst.row.chain:
        notes.append(f"reached through {worst.row.chain}")
    if worst.row.instruction.location is None:
        notes += _made_of(products, execution)
    return Finding(
        code="HS502",
        name="dense-ragged-dot",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(wasted / total),
        message=_message(products, worst),
        site=instruction_site(worst.row.instruction),
        evidence=(
            cost,
            Quantity("share of product FLOPs", wasted / total, Unit.SHARE, Basis.MODELLED, model),
            Quantity("dense over useful", dense / (dense - wasted), Unit.RATIO),
            Quantity("groups", worst.groups),
            *([Quantity("groups of a row", worst.chosen)] if worst.chosen > 1 else ()),
        ),
        cost=cost,
        fix=_fix(chip),
        notes=tuple(notes),
    )


def _message(products: Sequence[MaskedProduct], worst: MaskedProduct) -> str:
    many = len(products) > 1
    if worst.weighed:
        subject = f"{len(products)} products run" if many else "a product runs"
        return f"{subject} over all groups, of which a row chose {worst.chosen} of {worst.groups}"
    subject = f"{len(products)} ragged products run" if many else "a ragged product runs"
    return f"{subject} over all groups, with the rows of the others masked"


def _made_of(products: Sequence[MaskedProduct], execution: Execution) -> Iterator[str]:
    """Where the launches' operands come from, as TPU compilers drop the products' own names."""
    launches = [execution.launch_of(product.row.instruction) for product in products]
    operands = [operand for launch in launches if launch is not None for operand in launch.operands]
    locations = [operand.location for operand in operands]
    lines = dict.fromkeys(f"{one.file}:{one.line}" for one in locations if one is not None)
    if lines:
        yield f"no line of its own: it is made of what {', '.join(lines)} compute"


def _fix(chip: Chip | None) -> str:
    fixed = "or gather a fixed number of rows for each group and use a batched product"
    if chip is not None and chip.kind is ChipKind.TPU:
        return f"Use a grouped kernel (megablox gmm and tgmm), {fixed}."
    if chip is not None and chip.kind is ChipKind.GPU:
        return f"Use a grouped kernel written in Pallas or Triton, {fixed}."
    return f"Use a grouped kernel on the chip that it runs on, {fixed}."
