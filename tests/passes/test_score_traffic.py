import pytest

from hloscope.errors import Unavailable
from hloscope.passes.score_arrays import ScoreArrays
from hloscope.passes.score_traffic import ScoreTraffic

ATTENTION = """
HloModule m, is_scheduled=true
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  q = f32[4,64,8] parameter(0)
  k = f32[4,32,8] parameter(1)
  v = f32[4,32,16] parameter(2)
  zero = f32[] constant(0)
  scores = f32[4,64,32] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={2}
  weights = f32[4,64,32] exponential(scores)
  sums = f32[4,64] reduce(weights, zero), dimensions={2}, to_apply=add
  spread = f32[4,64,32] broadcast(sums), dimensions={0,1}
  normal = f32[4,64,32] divide(weights, spread)
  ROOT out = f32[4,64,16] dot(normal, v), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""
SCORES = 4 * 64 * 32 * 4  # bytes


def test_the_scores_are_named_by_their_sizes(session_of):
    (scores,) = session_of(ATTENTION).get(ScoreArrays).attentions
    assert (scores.heads, scores.queries, scores.keys, scores.depth) == (4, 64, 32, 8)
    assert {array.name for array in scores.arrays} == {"scores", "weights", "normal"}


def test_keys_are_what_the_second_product_sums_over(session_of):
    # The first product written the other way round: its rows are the keys.
    turned = (
        ATTENTION.replace("dot(q, k)", "dot(k, q)")
        .replace("[4,64,32]", "[4,32,64]")
        .replace("dimensions={2}, to_apply", "dimensions={1}, to_apply")
        .replace("dimensions={0,1}", "dimensions={0,2}")
        .replace(
            "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
            "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
        )
    )
    (scores,) = session_of(turned).get(ScoreArrays).attentions
    assert (scores.queries, scores.keys) == (64, 32)


def test_each_launch_counts_what_it_reads_and_writes_of_them(session_of):
    (row,) = session_of(ATTENTION).get(ScoreTraffic).rows
    # Three are written; exp reads one, the sum, the quotient and the product one each.
    assert (row.forward, row.backward, row.saved) == (7 * SCORES, 0, 0)
    assert row.exact


def test_without_a_sum_of_exponentials_it_is_no_softmax(session_of):
    gated = ATTENTION.replace("exponential(scores)", "tanh(scores)")
    assert session_of(gated).get(ScoreArrays).attentions == ()
    kept = ATTENTION.replace("reduce(weights, zero)", "reduce(scores, zero)")
    assert session_of(kept).get(ScoreArrays).attentions == ()


def test_without_a_second_product_it_is_no_attention(session_of):
    text = ATTENTION.partition("  ROOT out")[0].replace("  normal", "  ROOT normal") + "}\n"
    assert session_of(text).get(ScoreArrays).attentions == ()


def test_what_an_unscheduled_module_keeps_in_memory_is_not_known(session_of):
    with pytest.raises(Unavailable, match="not scheduled"):
        session_of(ATTENTION.replace(", is_scheduled=true", "")).get(ScoreTraffic)
