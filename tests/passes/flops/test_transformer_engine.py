"""Transformer Engine's calls: the arithmetic is written out beside each."""

import pytest

from hloscope.passes.flops.counts import Kind, Unmodelled
from hloscope.pipeline.findings import Basis

FORWARD, BACKWARD = "te_fused_attn_forward_ffi", "te_fused_attn_backward_ffi"
B, N, T, S, H, V = 2, 8, 16, 32, 64, 48
PAIRS = B * N * T * S
QKV = f"bf16[{B},{T},{N},{H}]; bf16[{B},{S},2,{H}]; bf16[{B},{S},2,{V}]"
OUT = f"(bf16[{B},{T},{N},{V}], f32[{B},{N},{T},1], u32[2,4], u8[0])"


def attributes(**more) -> str:
    values = {
        "attn_heads": N,
        "input_batch": B,
        "kv_max_seqlen": S,
        "mask_type": 0,
        "max_segments_per_seq": 1,
        "num_gqa_groups": 2,
        "q_max_seqlen": T,
        "qk_head_dim": H,
        "v_head_dim": V,
        "window_size_left": -1,
        "window_size_right": -1,
    } | more
    parts = [f"{name} = {value} : i64" for name, value in values.items() if value is not None]
    return "{" + ", ".join(parts) + "}"


def test_attention_is_counted_from_its_attributes(read_call):
    count = read_call(QKV, OUT, FORWARD, attributes())
    assert (count.kind, count.flops, count.basis) == (
        Kind.ATTENTION,
        2 * PAIRS * (H + V),
        Basis.MODELLED,
    )
    backward = read_call(QKV, OUT, BACKWARD, attributes())
    assert backward.flops == 2 * PAIRS * (3 * H + 2 * V)
    assert backward.recomputed_flops == 2 * PAIRS * H


def test_packed_queries_keys_and_values_do_not_mislead(read_call):
    packed = f"bf16[{B},{T},3,{N},{H}]; bf16[0]; bf16[0]"
    count = read_call(packed, OUT, FORWARD, attributes(kv_max_seqlen=T))
    assert count.flops == 2 * B * N * T * T * (H + V)


def test_older_versions_have_one_head_size(read_call):
    config = attributes(qk_head_dim=None, v_head_dim=None, head_dim=H)
    assert read_call(QKV, OUT, FORWARD, config).flops == 2 * PAIRS * (H + H)


@pytest.mark.parametrize(
    ("mask", "visible", "basis"),
    [
        (0, None, Basis.MODELLED),
        (1, None, Basis.BOUNDED),
        (2, sum(i + 1 for i in range(T)), Basis.MODELLED),
        (3, sum(i + 1 for i in range(T)), Basis.BOUNDED),
        # Aligned at the bottom right the last query sees every key.
        (4, sum(i + 1 + S - T for i in range(T)), Basis.MODELLED),
        (5, sum(i + 1 + S - T for i in range(T)), Basis.BOUNDED),
    ],
)
def test_mask_types(read_call, mask, visible, basis):
    count = read_call(QKV, OUT, FORWARD, attributes(mask_type=mask))
    assert count.basis is basis
    assert count.flops == 2 * PAIRS * (H + V)
    expected = None if visible is None else 2 * B * N * visible * (H + V)
    assert count.masked_flops == expected


def test_a_window_reaches_so_far_left_and_right(read_call):
    config = attributes(window_size_left=3, window_size_right=1)
    visible = sum(1 for i in range(T) for j in range(S) if i - 3 <= j <= i + 1)
    count = read_call(QKV, OUT, FORWARD, config)
    assert count.masked_flops == 2 * B * N * visible * (H + V)


def test_several_segments_a_sequence_make_it_an_upper_bound(read_call):
    count = read_call(QKV, OUT, FORWARD, attributes(max_segments_per_seq=4))
    assert count.basis is Basis.BOUNDED


def test_attention_without_attributes_is_unknown_by_what_it_lacks(read_call):
    count = read_call(QKV, OUT, FORWARD, "{attn_heads = 8 : i64}")
    assert count.flops is None
    assert "input_batch" in count.note


def test_calls_of_before_the_typed_interface_are_unknown(read_call):
    assert isinstance(read_call(QKV, OUT, "te_self_fused_attn_forward"), Unmodelled)


@pytest.mark.parametrize(
    ("lhs", "config"),
    [
        ("bf16[4,8,64]", "{config = {lhs_axis_boundary = 2 : i64, lhs_transposed = false}}"),
        ("bf16[64,4,8]", "{config = {lhs_axis_boundary = 1 : i64, lhs_transposed = true}}"),
        ("bf16[4,8,64]", "{lhs_axis_boundary = 2 : i64, lhs_transposed = false}"),
    ],
)
def test_a_product_is_split_at_its_boundary(read_call, lhs, config):
    operands = f"{lhs}; f32[0]; bf16[64,96]; f32[0]; bf16[0]; f32[1]; f32[1]"
    count = read_call(operands, "(bf16[4,8,96], u8[0])", "te_gemm_v2_ffi", config)
    assert (count.kind, count.flops) == (Kind.MATMUL, 2 * (4 * 8) * 64 * 96)


GROUPED = "{lhs_is_trans = false, lhs_left_size = 128 : i64, lhs_right_size = 64 : i64}"
NONE = "s32[0]"


def test_a_grouped_product_does_each_row_once(read_call):
    groups = f"s32[4]; {NONE}; {NONE}; {NONE}; s32[4]; {NONE}"
    operands = f"bf16[128,64]; f32[0]; bf16[4,64,96]; f32[0]; bf16[0]; {groups}"
    for target in ("te_grouped_gemm_ffi", "te_grouped_gemm_v2_ffi"):
        count = read_call(operands, "(bf16[128,96], u8[0])", target, GROUPED)
        assert count.flops == 2 * 128 * 64 * 96


def test_a_grouped_weight_gradient_does_each_row_once(read_call):
    groups = f"s32[4]; {NONE}; s32[4]; {NONE}; {NONE}; {NONE}"
    operands = f"bf16[128,64]; f32[0]; bf16[128,96]; f32[0]; bf16[0]; {groups}"
    config = GROUPED.replace("false", "true")
    count = read_call(operands, "(bf16[4,64,96], u8[0])", "te_grouped_gemm_ffi", config)
    assert count.flops == 2 * 128 * 64 * 96
    assert "4 groups" in count.note


def test_a_grouped_result_that_does_not_fit_is_refused(read_call):
    groups = f"s32[4]; {NONE}; {NONE}; {NONE}; s32[4]; {NONE}"
    operands = f"bf16[128,64]; f32[0]; bf16[4,64,96]; f32[0]; bf16[0]; {groups}"
    with pytest.raises(ValueError, match="does not fit"):
        read_call(operands, "(bf16[127,96], u8[0])", "te_grouped_gemm_ffi", GROUPED)
