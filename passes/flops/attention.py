"""What attention costs, whoever computes it, from its sizes and its mask.

The products inside are those of attention as everyone writes it: scores from
queries and keys, values weighted by them, and four more with one of these
repeated on the way back.
"""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.passes.flops.counts import Count, Kind
from hloscope.pipeline.findings import Basis

__all__ = ["Attention", "Mask", "visible_pairs"]


@dataclass(frozen=True, slots=True)
class Mask:
    """Which keys a query may see.

    Attributes:
        left: How many keys before its own position; ``None`` for all of them.
        right: How many after it, 0 for a causal mask; ``None`` for all of them.
        at_the_end: Whether the last query's position is the last key's (bottom
            right); otherwise the first query's is the first key's (top left).
        padded: Whether lengths known at run time only hide more.
    """

    left: int | None = None
    right: int | None = None
    at_the_end: bool = False
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Attention:
    """The sizes of one attention.

    Attributes:
        batch: Sequences.
        heads: Heads of the query; grouped ones share keys, which saves no products.
        queries: Queries a sequence.
        keys: Keys a sequence.
        wide: Size of a query and of a key.
        deep: Size of a value.
    """

    batch: int
    heads: int
    queries: int
    keys: int
    wide: int
    deep: int

    def count(
        self,
        mask: Mask,
        dtypes: tuple[str, ...],
        *,
        backward: bool,
        repeats_scores: bool = True,
    ) -> Count:
        """Count it dense: every query meets every key.

        With ``P`` pairs a head, forward is ``2 B N P (Hqk + Hv)`` and one
        exponential a pair. Backward is twice that, and where the scores are
        computed again ``2 B N P Hqk`` and the exponentials more. What the mask
        leaves stands in ``masked_flops``.

        Args:
            mask: Which keys a query may see.
            dtypes: Element types of queries and keys.
            backward: Whether this computes the gradients.
            repeats_scores: Whether the backward pass computes the scores again,
                as it does unless they were kept.

        Raises:
            ValueError: Some size is not positive.
        """
        sizes = (self.batch, self.heads, self.queries, self.keys, self.wide, self.deep)
        if min(sizes) <= 0:
            raise ValueError(f"its attention has sizes {sizes}")
        rows = 2 * self.batch * self.heads
        forward = rows * (self.wide + self.deep)
        repeated = rows * self.wide if backward and repeats_scores else 0
        per_pair = 2 * forward + repeated if backward else forward
        pairs = self.queries * self.keys
        visible = visible_pairs(self.queries, self.keys, mask)
        model = "dense attention"
        if backward:
            model += f", backward in {'five' if repeated else 'four'} products"
        note = "sequence lengths are known at run time only; this is the most it can be"
        return Count(
            Kind.ATTENTION,
            per_pair * pairs,
            Basis.BOUNDED if mask.padded else Basis.MODELLED,
            model,
            dtypes,
            None if visible == pairs else per_pair * visible,
            note if mask.padded else "",
            accumulation="f32",
            transcendentals=0 if backward and not repeated else rows // 2 * pairs,
            recomputed_flops=repeated * pairs,
        )


def visible_pairs(queries: int, keys: int, mask: Mask) -> int:
    """Pairs of one query and one key that a mask leaves.

    Query ``i`` stands at key ``i``, or at ``i + keys - queries`` where the mask
    is aligned at the end.
    """
    shift = keys - queries if mask.at_the_end else 0
    if mask.right is None:
        ends = queries * keys
    else:
        ends = _clipped_sum(queries, shift + mask.right + 1, keys)
    starts = 0 if mask.left is None else _clipped_sum(queries, shift - mask.left, keys)
    return max(0, ends - starts)


def _clipped_sum(count: int, first: int, top: int) -> int:
    """Sum of ``first + i`` for ``0 <= i < count``, each clipped to ``[0, top]``."""
    return _below(first + count, top) - _below(first, top)


def _below(limit: int, top: int) -> int:
    """Sum of ``min(j, top)`` for ``0 <= j < limit``."""
    if limit <= 0:
        return 0
    rising = min(limit, top)
    return rising * (rising - 1) // 2 + (limit - rising) * top
