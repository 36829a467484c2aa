"""Attention whose scores are arrays in memory: its products, and every array between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod

from hloscope.ir import Instruction
from hloscope.passes.buffer_kinds import Phase, phase_of
from hloscope.passes.call_graph import CallGraph
from hloscope.passes.element_flow import MOST_PADDED, ElementFlow
from hloscope.passes.product_sizes import ProductSizes, Sizes
from hloscope.passes.softmax_forms import softmax_gradient_sum, softmax_sum
from hloscope.pipeline.analyses import analysis

__all__ = ["ScoreArrays", "Scores", "find_score_arrays"]


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of attentions of one size.

    Attributes:
        heads: Batch times heads; of grouped queries the heads of keys.
        queries: Rows of the scores; of grouped queries those of all heads of a group.
        keys: Columns: what the softmax sums over.
        depth: What the product of queries and keys sums over.
        products: The products of queries and keys, the dearest first; where the program
            has none, as its forward pass ran before, those of the probabilities' gradient.
        arrays: Everything of the scores' size between the products, in the forward pass
            and in the backward pass: scores, probabilities, masks' results, gradients.
        backward_only: Whether the program multiplies no probabilities with values: it has
            the gradient only, and what of the forward pass that takes.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    products: tuple[Instruction, ...]
    arrays: frozenset[Instruction]
    backward_only: bool


@dataclass(frozen=True, slots=True)
class ScoreArrays:
    """Attentions that are written out as products with a softmax in between.

    Attributes:
        attentions: By size.
    """

    attentions: tuple[Scores, ...]


@analysis
def find_score_arrays(sizes: ProductSizes, graph: CallGraph) -> ScoreArrays:
    """Find batched products whose softmax another batched product multiplies with.

    Between the two every array has the scores' number of elements, and some ``exp`` of
    them is summed. Both products are batched, over heads, and the second one is no
    gradient: the logits of a classifier, which its gradient's products take, are neither.
    Where there is no such pair, a batched product whose result goes through the gradient
    of a softmax into another one is the gradient of the probabilities. Linear in the
    instructions between the products.
    """
    flow = ElementFlow(graph.callers)
    batched = [
        row.instruction
        for row in sorted(sizes.rows, key=lambda row: -row.nominal)
        if prod(sizes.by_product[row.instruction].batch) > 1
    ]
    forward = _by_size(batched, sizes, flow, _attention_sum)
    known = set(forward)
    rest = [product for product in batched if _key(sizes.by_product[product]) not in known]
    backward = _by_size(rest, sizes, flow, _gradient_sum)
    attentions = []
    for key, products in (*forward.items(), *backward.items()):
        same = [p for p, s in sizes.by_product.items() if _key(s) == key]
        seeds = [p for p in same if p in products or _is_gradient(p, sizes, flow)]
        arrays = flow.around(seeds)
        firsts = list(products)
        if key not in known:
            again = [p for p in same if p in arrays and p not in products]
            firsts = [p for p in again if not _is_transposed(p)] or firsts
        size = sizes.by_product[firsts[0]]
        queries, keys = _queries_and_keys(size, products.get(firsts[0]))
        attentions.append(
            Scores(
                heads=prod(size.batch),
                queries=queries,
                keys=keys,
                depth=prod(size.summed),
                products=tuple(firsts),
                arrays=arrays,
                backward_only=key not in known,
            )
        )
    return ScoreArrays(tuple(attentions))


_Sum = Callable[[Instruction, ProductSizes, ElementFlow], Instruction | None]


def _by_size(
    products: Iterable[Instruction], sizes: ProductSizes, flow: ElementFlow, summed: _Sum
) -> dict[tuple[int, ...], dict[Instruction, Instruction]]:
    """Products that go through a softmax or its gradient, with the sum in it, by size."""
    found: dict[tuple[int, ...], dict[Instruction, Instruction]] = {}
    for product in products:
        total = summed(product, sizes, flow)
        if total is not None:
            found.setdefault(_key(sizes.by_product[product]), {})[product] = total
    return found


def _key(size: Sizes) -> tuple[int, ...]:
    free = sorted((prod(size.rows), prod(size.columns)))
    return prod(size.batch), *free, prod(size.summed)


def _attention_sum(
    product: Instruction, sizes: ProductSizes, flow: ElementFlow
) -> Instruction | None:
    reached = flow.onwards(product)
    total = softmax_sum(reached, flow)
    seconds = _products_after(reached, product, sizes) if total is not None else ()
    return total if any(not _is_transposed(second) for second in seconds) else None


def _gradient_sum(
    product: Instruction, sizes: ProductSizes, flow: ElementFlow
) -> Instruction | None:
    reached = dict.fromkeys(flow.onwards(product))
    if not any(_products_after(reached, product, sizes)):
        return None
    return softmax_gradient_sum(reached, flow)


def _is_transposed(product: Instruction) -> bool:
    """Whether the product is a gradient by its name, and not a forward one run again."""
    return phase_of(product.op_name) is Phase.BACKWARD and "rematted" not in product.op_name


def _is_gradient(product: Instruction, sizes: ProductSizes, flow: ElementFlow) -> bool:
    """Whether a product is the gradient of the probabilities: further products take it."""
    if phase_of(product.op_name) is not Phase.BACKWARD:
        return False
    return any(_products_after(flow.onwards(product), product, sizes))


def _products_after(
    reached: Iterable[Instruction], first: Instruction, sizes: ProductSizes
) -> Iterator[Instruction]:
    """Products with the first one's batch that take one of the values."""
    batch = prod(sizes.by_product[first].batch)
    for value in reached:
        for user in value.users:
            size = sizes.by_product.get(user)
            if size is not None and prod(size.batch) == batch and value in user.operands[:2]:
                yield user


def _queries_and_keys(size: Sizes, total: Instruction | None) -> tuple[int, int]:
    """Rows and columns of the scores, without what XLA pads a product with."""
    rows, columns, heads = prod(size.rows), prod(size.columns), prod(size.batch)
    if total is None or total.opcode != "reduce" or not total.shape.is_array:
        return rows, columns
    # The softmax sums over the keys of what is left, and its sum is one number a query.
    queries, over = divmod(total.shape.num_elements, heads)
    keys = prod(total.operands[0].shape.dimensions[axis] for axis in total.dimensions)
    if not over and any(
        queries <= one <= MOST_PADDED * queries and keys <= other <= MOST_PADDED * keys
        for one, other in ((rows, columns), (columns, rows))
    ):
        return queries, keys
    return (columns, rows) if total.shape.num_elements == heads * columns else (rows, columns)
