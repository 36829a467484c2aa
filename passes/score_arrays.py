"""Attention whose scores are arrays in memory: its products, and every array between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from hloscope.ir import Computation, Instruction
from hloscope.passes.buffer_kinds import Phase, phase_of
from hloscope.passes.call_graph import Call, CallGraph, CallKind
from hloscope.passes.product_sizes import ProductSizes, Sizes
from hloscope.pipeline.analyses import analysis

__all__ = ["ScoreArrays", "Scores", "find_score_arrays"]

_ELEMENT_BY_ELEMENT = frozenset(
    """
    add bitcast clamp compare convert copy copy-done divide exponential multiply maximum minimum
    negate opt-barrier reduce-precision reshape select subtract tanh transpose
    """.split()  # noqa: SIM905
)
_MOVES = frozenset({"bitcast", "convert", "copy", "copy-done", "reshape", "select", "transpose"})
_MOST_VISITED = 20_000  # instructions between two products; softmax takes a few dozen


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of attentions of one size.

    Attributes:
        heads: Batch times heads.
        queries: Rows of the scores.
        keys: Columns: what the softmax sums over.
        depth: What the product of queries and keys sums over.
        products: The products of queries and keys, the dearest first.
        arrays: Everything of the scores' size between the products, in the forward pass
            and in the backward pass: scores, probabilities, masks' results, gradients.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    products: tuple[Instruction, ...]
    arrays: frozenset[Instruction]


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
    Linear in the instructions between the products.
    """
    flow = _Flow(graph.callers)
    found: dict[tuple[int, ...], list[Instruction]] = {}
    for row in sorted(sizes.rows, key=lambda row: -row.nominal):
        product, size = row.instruction, sizes.by_product[row.instruction]
        if prod(size.batch) > 1 and _is_attention(product, sizes, flow):
            found.setdefault(_key(size), []).append(product)
    attentions = []
    for products in found.values():
        size = sizes.by_product[products[0]]
        same = [p for p, s in sizes.by_product.items() if _key(s) == _key(size)]
        seeds = [p for p in same if p in products or _is_gradient(p, sizes, flow)]
        arrays = flow.around(seeds)
        queries, keys = prod(size.rows), prod(size.columns)
        if _sums_rows(products[0], sizes, flow):
            queries, keys = keys, queries
        attentions.append(
            Scores(prod(size.batch), queries, keys, prod(size.summed), tuple(products), arrays)
        )
    return ScoreArrays(tuple(attentions))


def _key(size: Sizes) -> tuple[int, ...]:
    free = sorted((prod(size.rows), prod(size.columns)))
    return prod(size.batch), *free, prod(size.summed)


def _is_attention(product: Instruction, sizes: ProductSizes, flow: _Flow) -> bool:
    reached = flow.onwards(product)
    if not any(flow.is_summed(value) for value in reached if value.opcode == "exponential"):
        return False
    return any(not _is_transposed(second) for second in _products_after(reached, product, sizes))


def _is_transposed(product: Instruction) -> bool:
    """Whether the product is a gradient by its name, and not a forward one run again."""
    return phase_of(product.op_name) is Phase.BACKWARD and "rematted" not in product.op_name


def _is_gradient(product: Instruction, sizes: ProductSizes, flow: _Flow) -> bool:
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


def _sums_rows(product: Instruction, sizes: ProductSizes, flow: _Flow) -> bool:
    """Whether the product's rows are what the softmax sums over, and not its columns."""
    rows = prod(sizes.by_product[product].rows)
    columns = prod(sizes.by_product[product].columns)
    reached = flow.onwards(product)
    seconds = _products_after(reached, product, sizes)
    summed = {prod(sizes.by_product[second].summed) for second in seconds}
    return rows != columns and rows in summed and columns not in summed


class _Flow:
    """Follows an array through what keeps its number of elements, in and out of fusions."""

    def __init__(self, callers: Mapping[Computation, tuple[Call, ...]]) -> None:
        self.callers = callers

    def onwards(self, start: Instruction) -> list[Instruction]:
        """The start and all that is computed of it element by element."""
        return self._closure([start], back=False)

    def around(self, starts: list[Instruction]) -> frozenset[Instruction]:
        """The starts, all that is computed of them and all that it is computed with."""
        return frozenset(self._closure(starts, back=True))

    def is_summed(self, value: Instruction) -> bool:
        """Whether a value is added up as it is, at most converted, masked or moved."""
        pending, seen = [value], {value}
        while pending and len(seen) < _MOST_VISITED:
            current = pending.pop()
            for user in self._next(current):
                if user.opcode == "reduce" and user.operands[:1] == (current,):
                    if any(called.root.opcode == "add" for called in user.called):
                        return True
                elif user not in seen and (
                    user.opcode in _MOVES
                    or user.opcode in ("parameter", "fusion", "call", "get-tuple-element")
                ):
                    seen.add(user)
                    pending.append(user)
        return False

    def _closure(self, starts: list[Instruction], *, back: bool) -> list[Instruction]:
        elements = _elements(starts[0])
        pending, seen = list(starts), dict.fromkeys(starts)
        products = set(starts)
        while pending and len(seen) < _MOST_VISITED:
            current = pending.pop()
            onwards = [
                user
                for user in self._next(current)
                if user.opcode in _ELEMENT_BY_ELEMENT
                or user.computation is not current.computation
                or user.opcode in ("get-tuple-element", "copy-start")
            ]
            if back and current not in products:
                onwards += self._before(current)
            for value in onwards:
                if value not in seen and _elements(value) == elements:
                    seen[value] = None
                    pending.append(value)
        return list(seen)

    def _next(self, value: Instruction) -> Iterator[Instruction]:
        """Users, with a fusion's parameter for the fusion and its caller after the root."""
        for user in value.users:
            if user.opcode in ("fusion", "call") and user.called:
                parameters = user.called[0].parameters
                for place, operand in enumerate(user.operands):
                    if operand is value and place < len(parameters):
                        yield parameters[place]
            elif user.opcode == "tuple" and user.is_root:
                caller = self._caller(user)
                if caller is not None:
                    at = [place for place, one in enumerate(user.operands) if one is value]
                    yield from (gte for gte in caller.users if gte.tuple_index in at)
            elif user.opcode == "copy-start":
                yield from user.users
            else:
                yield user
        if value.is_root and value.shape.is_array:
            caller = self._caller(value)
            if caller is not None:
                yield caller

    def _before(self, value: Instruction) -> Iterator[Instruction]:
        """What a value is computed of element by element, out of and into fusions."""
        opcode, operands = value.opcode, value.operands
        if opcode in _ELEMENT_BY_ELEMENT:
            for operand in operands:
                if operand.opcode == "copy-start" and operand.operands:
                    yield operand.operands[0]
                elif operand.opcode not in ("broadcast", "iota", "constant"):
                    yield operand
        elif opcode == "parameter":
            caller = self._caller(value)
            number = value.parameter_number or 0
            if caller is not None and number < len(caller.operands):
                yield caller.operands[number]
        elif opcode in ("fusion", "call") and value.called:
            yield value.called[0].root
        elif (
            opcode == "get-tuple-element"
            and operands
            and operands[0].opcode == "fusion"
            and operands[0].called
        ):
            root = operands[0].called[0].root
            index = value.tuple_index or 0
            if root.opcode == "tuple" and index < len(root.operands):
                yield root.operands[index]

    def _caller(self, inside: Instruction) -> Instruction | None:
        calls = self.callers.get(inside.computation, ())
        if len(calls) == 1 and calls[0].kind is CallKind.ONCE:
            caller = calls[0].caller
            return caller if caller.opcode in ("fusion", "call") else None
        return None


def _elements(value: Instruction) -> int:
    """Elements of an array; of a library call's result without its workspace."""
    shape = value.shape
    if shape.is_tuple and value.opcode == "custom-call" and shape.elements:
        shape = shape.elements[0]
    return shape.num_elements if shape.is_array else -1
