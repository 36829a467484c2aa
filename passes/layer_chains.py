"""Layers that stand one after another in a program: the same products at even distances."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.passes.execution import Execution
from hloscope.passes.flops.counts import result_of
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.pipeline.analyses import analysis

__all__ = ["LayerChains", "find_layer_chains"]

_FEWEST = 4
_PERIODS = 24  # the distances that occur most often are tried
_UNEVEN = 6  # a distance may be off by its sixth, as where a long skip connection joins,
_PRODUCTS_MORE = 4  # but not by more products


@dataclass(frozen=True, slots=True)
class LayerChains:
    """Equal products of a program that depend on each other at even distances.

    Attributes:
        times: The number of layers that most of them stand in; 1 where there are none.
        products: Products that the program spells out.
        saved: Those of them that would not be there if a loop ran over each chain of
            layers.
        example: The first of the products with most FLOPs in the longest chains.
    """

    times: int
    products: int
    saved: float
    example: Instruction | None

    @property
    def share(self) -> float:
        """The part of the program's products that loops would do without."""
        return self.saved / self.products if self.products else 0.0


@dataclass(frozen=True, slots=True)
class _Content:
    """What a computation holds: a digest of its products, how many, and how many loops leave."""

    digest: int
    products: int
    left: float


@dataclass(frozen=True, slots=True)
class _Product:
    """A product, or a loop with products in it, and how deep it stands in its computation."""

    instruction: Instruction
    weight: float
    flops: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Equal products, each at about the same distance behind the one before."""

    times: int
    weight: float
    first: _Product

    @property
    def saved(self) -> float:
        return self.weight * (1 - 1 / self.times)


_Depths = Mapping[int, Sequence[_Product]]


@analysis
def find_layer_chains(ledger: FlopLedger, execution: Execution) -> LayerChains:
    """Find the distance between equal products with which loops would save most; linear.

    A product is as deep as the longest chain of products that ends with it. In a stack
    of equal layers every product of a layer stands again in the next one, as much
    deeper as a layer is, forwards and backwards. Compilers fuse what lies around
    products in one layer otherwise than in the next, and the levels of a UNet have equal
    parts too, but not one behind another: hence products, and distances. A loop counts
    as one product, whose layers' bodies are equal where their products are.
    """
    launched: defaultdict[Instruction, list[FlopRow]] = defaultdict(list)
    for row in ledger.rows:
        launch = execution.launch_of(row.instruction)
        if launch is not None:
            launched[launch].append(row)
    contents: dict[Computation, _Content] = {}
    saved, runs = 0.0, []
    for computation in execution.order:
        groups = _products(computation, execution, launched, contents)
        found = _best_runs(groups.values())
        here = sum(run.saved for run in found)
        standing = [p for depths in groups.values() for level in depths.values() for p in level]
        counted = Counter({key: sum(map(len, depths.values())) for key, depths in groups.items()})
        contents[computation] = _Content(
            hash(frozenset(counted.items())),
            sum(len(launched[i]) for i in computation.instructions if i in launched)
            + sum(contents[call.callee].products for call in execution.calls[computation]),
            sum(product.weight for product in standing) - here,
        )
        saved += here
        runs += found
    total = sum(map(len, launched.values()))
    if not runs:
        return LayerChains(1, total, 0.0, None)
    weights: defaultdict[int, float] = defaultdict(float)
    for run in runs:
        weights[run.times] += run.weight
    times = max(weights, key=lambda number: (weights[number], number))
    chosen = [run.first for run in runs if run.times == times]
    example = max(chosen, key=lambda p: (p.instruction.location is not None, p.flops))
    return LayerChains(times, total, saved, example.instruction)


def _products(
    computation: Computation,
    execution: Execution,
    launched: Mapping[Instruction, Sequence[FlopRow]],
    contents: Mapping[Computation, _Content],
) -> dict[int, dict[int, list[_Product]]]:
    """The products that stand in a computation, by what they multiply, by depth."""
    called: defaultdict[Instruction, list[_Content]] = defaultdict(list)
    for call in execution.calls[computation]:
        if contents[call.callee].products:
            called[call.caller].append(contents[call.callee])
    groups: defaultdict[int, defaultdict[int, list[_Product]]]
    groups = defaultdict(lambda: defaultdict(list))
    depths: dict[Instruction, int] = {}
    for instruction in computation.instructions:
        depth = max((depths.get(operand, 0) for operand in instruction.operands), default=0)
        found = [
            (_key(row), _Product(row.instruction, 1, row.nominal))
            for row in launched.get(instruction, ())
        ]
        if inside := called.get(instruction):
            key = hash(("loop", *(content.digest for content in inside)))
            found.append((key, _Product(instruction, sum(c.left for c in inside), 0)))
        depths[instruction] = depth + bool(found)
        for key, product in found:
            groups[key][depth + 1].append(product)
    return {key: dict(levels) for key, levels in groups.items()}


def _key(row: FlopRow) -> int:
    """Equal for products of equal arrays, whatever a compiler has fused them with."""
    product = row.instruction
    operands = [operand.shape for operand in product.operands[:2]]
    sizes = [shape.dimensions for shape in operands if not shape.is_tuple]
    count = row.count
    return hash(
        (count.kind, count.dtypes, count.flops, result_of(product).dimensions, tuple(sizes))
    )


def _best_runs(groups: Collection[_Depths]) -> list[_Run]:
    """The runs of the distance with which loops over them save most."""
    distances: Counter[int] = Counter()
    for levels in groups:
        depths = sorted(levels)
        for apart in (1, 2, 3):
            distances.update(b - a for a, b in zip(depths, depths[apart:], strict=False))
    best: list[_Run] = []
    saved = 0.0
    for distance, _ in sorted(distances.most_common(_PERIODS)):
        runs = [run for levels in groups for run in _runs(levels, distance)]
        if (now := sum(run.saved for run in runs)) > saved:
            best, saved = runs, now
    return best


def _runs(levels: _Depths, distance: int) -> Iterator[_Run]:
    """Follow equal products from each to the next at that distance, each one once."""
    off = min(distance // _UNEVEN, _PRODUCTS_MORE)
    near = sorted(range(-off, off + 1), key=abs)
    left = set(levels)
    for start in sorted(levels):
        if start not in left:
            continue
        run = [start]
        while True:
            after = (run[-1] + distance + step for step in near)
            depth = next((depth for depth in after if depth in left), None)
            if depth is None:
                break
            run.append(depth)
        if len(run) >= _FEWEST:
            left.difference_update(run)
            products = [product for depth in run for product in levels[depth]]
            yield _Run(len(run), sum(p.weight for p in products), products[0])
