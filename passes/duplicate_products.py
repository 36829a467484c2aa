"""Products that are computed again although nothing about them has changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hloscope.errors import InputError
from hloscope.ir import Computation, Instruction
from hloscope.passes.call_graph import CallGraph, CallKind
from hloscope.passes.execution import Execution
from hloscope.passes.flops.call_config import integers, nested, section
from hloscope.passes.flops.counts import HEADLINE
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.remat import Remat
from hloscope.passes.step_parts import is_replay, is_xla_clone
from hloscope.passes.value_classes import ValueClasses, View, distinguishing_attributes
from hloscope.pipeline.analyses import analysis

__all__ = ["DuplicateProduct", "DuplicateProducts", "find_duplicate_products"]

_GEMMS = frozenset({"__cublas$gemm", "__cublas$lt$matmul"})
_GROUPS = frozenset({"feature_group_count", "batch_group_count", "window"})

_Dims = tuple[tuple[int, int, bool], ...]
"""Dimensions of both operands that belong together, and whether they are batch dimensions."""


@dataclass(frozen=True, slots=True)
class DuplicateProduct:
    """One result that is computed more than once, but for the order of its dimensions.

    Attributes:
        rows: The products, in the order of the ledger; one alone where that
            multiplies the same values several times over.
        times: How often the result is computed.
        wasted: FLOPs beyond the first in one step, nominally.
    """

    rows: Sequence[FlopRow]
    times: int
    wasted: int


@dataclass(frozen=True, slots=True)
class DuplicateProducts:
    """All such results, those with most FLOPs to spare first."""

    rows: Sequence[DuplicateProduct]


@analysis
def find_duplicate_products(
    graph: CallGraph,
    execution: Execution,
    ledger: FlopLedger,
    classes: ValueClasses,
    remat: Remat,
) -> DuplicateProducts:
    """Compare products by their operands, within what runs together; linear.

    A product of two matrices and the product of their transpositions in the
    other order are the same one; so are those with the same rows of one matrix
    where a matrix joins them several times. Only products that one run of a computation
    computes (with the fusions and calls in it) are compared: not those of two
    loops, of two branches, or of a loop and what surrounds it. Left out is what
    is computed again on purpose, by a checkpoint or by XLA, and in a program
    with checkpoints every product without a name, as it may be such.
    """
    frames = _frames(graph)
    groups: dict[Hashable, list[FlopRow]] = {}
    found: list[DuplicateProduct] = []
    for row in ledger.rows:
        product = row.instruction
        if row.count.kind not in HEADLINE or not row.nominal:
            continue
        # XLA's own rematerialization names the fusion that it clones, not what is in it.
        launch = execution.launch_of(product)
        if any(is_replay(each) or is_xla_clone(each) for each in (product, launch) if each):
            continue
        if not product.op_name and (remat.asked or remat.regions):
            continue
        sides = _sides(product, classes)
        if sides:
            try:
                dims = _dims(product) if len(sides) > 1 else None
            except (InputError, ValueError):
                continue  # what it multiplies is not known
            key = frames[product.computation], _key(product, sides, dims)
            groups.setdefault(key, []).append(row)
            if dims is not None:
                found += _repeated(row, sides, dims, classes)
    found += [
        DuplicateProduct(group, len(group), sum(row.nominal for row in group[1:]))
        for group in groups.values()
        if len(group) > 1
    ]
    found.sort(key=lambda one: -one.wasted)
    return DuplicateProducts(found)


def _frames(graph: CallGraph) -> dict[Computation, Computation]:
    """The computation that each is part of a run of: through fusions and calls its caller's."""
    frames: dict[Computation, Computation] = {}
    for computation in reversed(graph.order):
        calls = graph.callers.get(computation, ())
        if len(calls) == 1 and calls[0].kind is CallKind.ONCE:
            frames[computation] = frames[calls[0].caller.computation]
        else:
            frames[computation] = computation
    return frames


def _sides(product: Instruction, classes: ValueClasses) -> Sequence[View]:
    """The operands as what they are; none where one is not followed."""
    views = [classes.view(operand) for operand in product.operands]
    sides = [view for view in views if view is not None]
    return sides if len(sides) == len(views) else ()


def _key(product: Instruction, sides: Sequence[View], dims: _Dims | None) -> Hashable:
    """Equal for products of one result."""
    if dims is None:
        return (
            product.opcode,
            str(product.shape.without_layout()),
            tuple(sides),
            distinguishing_attributes(product),
            product.attributes.get("backend_config"),
        )
    # What follows the two matrices (a bias, say) is added to the product.
    one = _shared(sides[0], sides[1], dims)
    other = _shared(sides[1], sides[0], tuple((b, a, batched) for a, b, batched in dims))
    dtype = product.shape.leaves()[0].dtype
    return (product.opcode, dtype, min(one, other), _precision(product))


def _shared(lhs: View, rhs: View, dims: _Dims) -> tuple[int, int, _Dims]:
    """Two matrices and the dimensions that they share, in terms of what they transpose."""
    shared = sorted((lhs.order[a], rhs.order[b], batched) for a, b, batched in dims)
    return lhs.value, rhs.value, tuple(shared)


def _repeated(
    row: FlopRow, sides: Sequence[View], dims: _Dims, classes: ValueClasses
) -> Iterator[DuplicateProduct]:
    """A product with a matrix that joins the same rows several times.

    GPU compilers write so two products that share an operand as one.
    """
    for place, side in enumerate(sides[:2]):
        joined = classes.parts(side.value)
        if joined is None or joined[0] in {side.order[pair[place]] for pair in dims}:
            continue
        counts: dict[int, int] = {}
        spare = 0
        for part in joined[1]:
            spare += part.size if part.value in counts else 0
            counts[part.value] = counts.get(part.value, 0) + 1
        if spare:
            size = sum(part.size for part in joined[1])
            yield DuplicateProduct([row], max(counts.values()), row.nominal * spare // size)


def _dims(product: Instruction) -> _Dims | None:
    """The dimensions that two operands share; ``None`` where it is no product of matrices."""
    if product.opcode == "dot":
        dims = product.dot_dims
        contracted = tuple(zip(dims.lhs_contracting, dims.rhs_contracting, strict=False))
        batch = tuple(zip(dims.lhs_batch, dims.rhs_batch, strict=False))
    elif product.opcode == "convolution":
        labels = product.dim_labels
        plain = not (_GROUPS & product.attributes.keys())
        if labels is None or labels.input_spatial or not plain:
            return None
        contracted = ((labels.input_feature, labels.kernel_input_feature),)
        batch = ()
    elif product.custom_call_target in _GEMMS:
        config = nested(_gemm(product), "dot_dimension_numbers")
        sides = [
            [integers(config, f"{side}_{kind}_dimensions") for side in ("lhs", "rhs")]
            for kind in ("contracting", "batch")
        ]
        contracted, batch = (tuple(zip(*pair, strict=False)) for pair in sides)
    else:
        return None
    found = (*((a, b, False) for a, b in contracted), *((a, b, True) for a, b in batch))
    ranks = [operand.shape.rank for operand in product.operands[:2]]
    inside = all(0 <= a < ranks[0] and 0 <= b < ranks[1] for a, b, _ in found)
    return found if found and inside else None


def _gemm(product: Instruction) -> Mapping[str, Any]:
    return section(product.backend_config, "gemm_backend_config")


def _precision(product: Instruction) -> Hashable:
    """How operands are rounded and what the product is multiplied with."""
    config = _gemm(product) if product.custom_call_target in _GEMMS else {}
    return (
        *(product.attributes.get(key) for key in ("operand_precision", "algorithm")),
        *(str(config.get(key)) for key in ("alpha_real", "alpha_imag", "precision_config")),
        product.custom_call_target,
    )
