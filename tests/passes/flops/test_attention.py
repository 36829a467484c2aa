"""Attention by its sizes and its mask; every pair of the mask is enumerated here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.passes.flops.attention import Attention, Mask, visible_pairs
from hloscope.passes.flops.counts import Kind
from hloscope.pipeline.findings import Basis

SIZES = Attention(batch=2, heads=4, queries=16, keys=32, wide=64, deep=48)
PAIRS = 2 * 4 * 16 * 32
CAUSAL = Mask(right=0)


def enumerated(queries: int, keys: int, mask: Mask) -> int:
    shift = keys - queries if mask.at_the_end else 0
    return sum(
        1
        for i in range(queries)
        for j in range(keys)
        if (mask.left is None or j >= i + shift - mask.left)
        and (mask.right is None or j <= i + shift + mask.right)
    )


reach = st.one_of(st.none(), st.integers(0, 9))


@given(
    queries=st.integers(1, 12),
    keys=st.integers(1, 12),
    mask=st.builds(Mask, left=reach, right=reach, at_the_end=st.booleans()),
)
def test_visible_pairs_are_those_that_the_mask_leaves(queries, keys, mask):
    assert visible_pairs(queries, keys, mask) == enumerated(queries, keys, mask)


def test_forward_is_scores_and_weighted_values():
    count = SIZES.count(Mask(), ("bf16", "bf16"), backward=False)
    assert (count.kind, count.flops, count.basis) == (
        Kind.ATTENTION,
        2 * PAIRS * (64 + 48),
        Basis.MODELLED,
    )
    assert (count.masked_flops, count.recomputed_flops) == (None, 0)
    assert count.transcendentals == PAIRS  # one exponential a pair
    assert count.accumulation == "f32"


def test_backward_takes_five_products_of_which_one_repeats_the_scores():
    count = SIZES.count(Mask(), ("bf16", "bf16"), backward=True)
    scores, values = 2 * PAIRS * 64, 2 * PAIRS * 48
    # Again the scores; dV and dP; dQ and dK.
    assert count.flops == scores + (values + values) + (scores + scores)
    assert count.recomputed_flops == scores
    assert count.flops - count.recomputed_flops == 2 * (scores + values)
    assert count.transcendentals == PAIRS
    assert "five products" in count.model


def test_backward_with_the_probabilities_at_hand_takes_four():
    count = SIZES.count(Mask(), ("bf16", "bf16"), backward=True, repeats_scores=False)
    assert count.flops == 2 * 2 * PAIRS * (64 + 48)
    assert (count.recomputed_flops, count.transcendentals) == (0, 0)
    assert "four products" in count.model


def test_the_causal_mask_is_given_beside_the_dense_count():
    count = SIZES.count(CAUSAL, ("bf16", "bf16"), backward=False)
    assert count.flops == 2 * PAIRS * (64 + 48)
    assert count.masked_flops == 2 * (2 * 4) * (16 * 17 // 2) * (64 + 48)


def test_without_masked_pairs_everything_shrinks_in_proportion():
    count = SIZES.count(CAUSAL, ("bf16", "bf16"), backward=True).without_masked_pairs()
    visible = 2 * 4 * 16 * 17 // 2
    assert count.flops == 2 * visible * (3 * 64 + 2 * 48)
    assert count.recomputed_flops == 2 * visible * 64
    assert count.transcendentals == visible
    assert "masked" in count.model


def test_lengths_known_at_run_time_only_make_it_an_upper_bound():
    count = SIZES.count(Mask(padded=True), ("bf16", "bf16"), backward=False)
    assert (count.basis, count.flops) == (Basis.BOUNDED, 2 * PAIRS * (64 + 48))
    assert "run time" in count.note


def test_a_size_of_zero_is_refused_rather_than_counted_as_nothing():
    with pytest.raises(ValueError, match="sizes"):
        Attention(2, 4, 0, 32, 64, 48).count(Mask(), (), backward=False)
