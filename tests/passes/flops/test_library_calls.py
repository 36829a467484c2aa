"""cuBLAS, cuDNN and Pallas calls: the arithmetic is written out beside each."""

import json

import pytest
from oracles.custom_call_texts import custom_call

from hloscope.passes.flops.counts import Count, Kind
from hloscope.passes.flops.custom_calls import NoProducts, Unmodelled, read_custom_call
from hloscope.pipeline.findings import Basis


def call(operands: str, result: str, target: str, config=None, extra: str = ""):
    text = json.dumps(config) if config is not None else ""
    return read_custom_call(custom_call(operands, result, target, text, extra))


def gemm(lhs_contracting, rhs_contracting, lhs_batch=(), rhs_batch=()):
    dims = {
        "lhs_contracting_dimensions": [str(d) for d in lhs_contracting],
        "rhs_contracting_dimensions": [str(d) for d in rhs_contracting],
    }
    if lhs_batch:
        dims["lhs_batch_dimensions"] = [str(d) for d in lhs_batch]
        dims["rhs_batch_dimensions"] = [str(d) for d in rhs_batch]
    return {"dot_dimension_numbers": dims, "beta": 0}


def test_cublas_lt_with_a_workspace():
    count = call(
        "bf16[16,128,64]; bf16[16,64,32]",
        "(bf16[16,128,32], s8[4194304])",
        "__cublas$lt$matmul",
        {"gemm_backend_config": gemm([2], [1], [0], [0])},
    )
    assert (count.kind, count.flops, count.basis) == (
        Kind.MATMUL,
        2 * 16 * 128 * 64 * 32,
        Basis.EXACT,
    )


def test_old_cublas_calls_have_no_workspace_and_their_configuration_on_top():
    count = call("f32[8,4]; f32[4,6]", "f32[8,6]", "__cublas$gemm", gemm([1], [0]))
    assert count.flops == 2 * 8 * 4 * 6


def test_scales_biases_and_addends_of_an_fp8_product_change_nothing():
    count = call(
        "f8e4m3fn[64,128]; f8e4m3fn[32,128]; bf16[64,32]; f32[]; f32[]; bf16[32]",
        "(bf16[64,32], f32[], s8[1024])",
        "__cublas$lt$matmul$f8",
        {"gemm_backend_config": gemm([1], [1])},
    )
    assert (count.flops, count.dtypes) == (2 * 64 * 128 * 32, ("f8e4m3fn", "f8e4m3fn"))


def test_a_complex_product_does_four_times_the_work():
    count = call(
        "c64[8,4]; c64[4,6]",
        "(c64[8,6], s8[64])",
        "__cublas$gemm",
        {"gemm_backend_config": gemm([1], [0])},
    )
    assert count.flops == 8 * 8 * 4 * 6


@pytest.mark.parametrize(
    ("operands", "result", "contracting", "ragged"),
    [
        ("bf16[64,16]; bf16[4,16,32]; s32[4]", "(bf16[64,32], s8[8])", "1", "0"),
        ("bf16[16,64]; bf16[64,32]; s32[4]", "(bf16[4,16,32], s8[8])", "1", "1"),
    ],
)
def test_a_grouped_product_does_each_row_once(operands, result, contracting, ragged):
    config = {
        "grouped_gemm_backend_config": {
            "gemm_backend_config": {},
            "ragged_dot_dimension_numbers": {
                "dot_dimension_numbers": {"lhs_contracting_dimensions": [contracting]},
                "lhs_ragged_dimensions": [ragged],
            },
        }
    }
    count = call(operands, result, "__cublas$lt$groupedMatmul", config)
    assert count.flops == 2 * 64 * 16 * 32


def test_a_block_scaled_product_contracts_the_last_dimension():
    count = call(
        "f8e4m3fn[2,64,128]; f8e4m3fn[2,32,128]; f8e8m0fnu[2,64,4]; f8e8m0fnu[2,32,4]",
        "f32[2,64,32]",
        "__cudnn$blockScaledDot",
    )
    assert count.flops == 2 * 2 * 64 * 32 * 128


def test_a_product_without_dimension_numbers_is_unknown_not_zero():
    count = call("f32[8,4]; f32[4,6]", "f32[8,6]", "__cublas$gemm", {"beta": 0})
    assert (count.flops, count.basis) == (None, Basis.UNKNOWN)
    assert "contracted dimensions" in count.note


CONVOLUTION = ", window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f"
X, W, Y = "f32[4,9,9,8]", "f32[16,3,3,8]", "f32[4,5,5,16]"
# Outputs at -1, 1, 3, 5, 7 meet 2 + 3 + 3 + 3 + 2 elements of the nine.
EXPECTED = 2 * 8 * 16 * 4 * 13 * 13


@pytest.mark.parametrize(
    ("target", "operands", "result"),
    [
        ("convForward", f"{X}; {W}", f"({Y}, u8[0])"),
        ("convBiasActivationForward", f"{X}; {W}; f32[16]; {Y}", f"({Y}, u8[0])"),
        ("convForwardGraph", f"{X}; {W}; f32[]", f"({Y}, f32[], u8[0])"),
        ("convBackwardInput", f"{Y}; {W}", f"({X}, u8[0])"),
        ("convBackwardFilter", f"{X}; {Y}", f"({W}, u8[0])"),
    ],
)
def test_all_cudnn_convolutions_cost_what_the_forward_one_does(target, operands, result):
    count = call(operands, result, f"__cudnn${target}", {}, CONVOLUTION)
    assert (count.kind, count.flops, count.basis) == (Kind.CONVOLUTION, EXPECTED, Basis.EXACT)


def test_grouped_cudnn_convolutions_divide_the_features():
    count = call(
        "f32[4,9,9,8]; f32[16,3,3,2]",
        "(f32[4,5,5,16], u8[0])",
        "__cudnn$convForward",
        {},
        CONVOLUTION + ", feature_group_count=4",
    )
    assert count.flops == EXPECTED // 4


def test_vectorised_int8_features_are_folded_back():
    count = call(
        "s8[4,2,9,9,4]; s8[16,2,3,3,4]",
        "(s8[4,4,5,5,4], u8[0])",
        "__cudnn$convForward",
        {},
        ", window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=bf01?_oi01?->bf01?",
    )
    assert count.flops == EXPECTED


def attention(mask="NO_MASK", backward=False, **more):
    config = {
        "intermediate_tensor_shape": {"dimensions": ["2", "4", "16", "32"]},
        "mask_type": mask,
        **more,
    }
    if not backward:
        config["bmm1_dot_dimension_numbers"] = {"lhs_contracting_dimensions": ["3"]}
    return {"cudnn_fmha_backend_config": config}


Q, K, V, OUT = "bf16[2,16,4,64]", "bf16[2,32,4,64]", "bf16[2,32,4,48]", "bf16[2,4,16,48]"
STATS = "f32[2,4,16]"


def test_attention_forward_is_scores_and_weighted_values():
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fmhaSoftmax", attention())
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (64 + 48)
    assert (count.kind, count.basis, count.model) == (
        Kind.ATTENTION,
        Basis.MODELLED,
        "dense attention",
    )
    assert count.masked_flops is None


def test_attention_backward_repeats_the_scores():
    count = call(
        f"{Q}; {K}; {V}; {STATS}; {OUT}; {OUT}",
        f"({Q}, {K}, {V}, u8[0])",
        "__cudnn$fmhaSoftmaxBackward",
        attention(backward=True),
    )
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (3 * 64 + 2 * 48)


def test_grouped_heads_count_the_querys():
    count = call(
        f"{Q}; bf16[2,32,2,64]; bf16[2,32,2,48]",
        f"({OUT}, u8[0])",
        "__cudnn$fmhaSoftmax",
        attention(),
    )
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (64 + 48)


def test_the_causal_mask_is_given_beside_the_dense_count():
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fmhaSoftmax", attention("CAUSAL"))
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (64 + 48)
    assert count.masked_flops == 2 * (2 * 4) * (16 * 17 // 2) * (64 + 48)


def test_the_misspelt_targets_of_2023_are_attention_too():
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fhmaScaleBiasSoftmax", attention())
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (64 + 48)


def test_paged_attention_counts_its_pages_not_one_of_them():
    config = attention(is_paged_attention=True)
    config["cudnn_fmha_backend_config"]["intermediate_tensor_shape"]["dimensions"][3] = "8"
    count = call(
        f"{Q}; bf16[8,8,4,64]; bf16[8,8,4,48]; s32[2]; s32[2]; s32[2,1,4,1]; s32[2,1,4,1]",
        f"({OUT}, u8[0])",
        "__cudnn$fmhaSoftmax",
        config,
    )
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (64 + 48)


def test_attention_that_does_not_say_its_shape_is_unknown():
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fmhaSoftmax", {})
    assert count.flops is None


def test_padding_makes_an_upper_bound():
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fmhaSoftmax", attention("PADDING"))
    assert "run time" in count.note
    assert (count.basis, count.flops) == (Basis.BOUNDED, 2 * (2 * 4) * (16 * 32) * (64 + 48))


def test_packed_sequences_make_an_upper_bound():
    config = attention(max_seg_per_batch=4)
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fmhaSoftmax", config)
    assert count.basis is Basis.BOUNDED


def test_a_window_lets_a_query_see_the_last_keys_its_own_among_them():
    config = attention(sliding_window_length=3)
    count = call(f"{Q}; {K}; {V}", f"({OUT}, u8[0])", "__cudnn$fmhaSoftmax", config)
    visible = sum(min(i + 1, 3) for i in range(16))
    assert count.masked_flops == 2 * (2 * 4) * visible * (64 + 48)


def test_builds_of_2023_that_keep_the_probabilities_do_not_repeat_the_scores():
    count = call(
        f"{Q}; {K}; {V}; bf16[2,4,16,32]; {OUT}",
        f"({Q}, {K}, {V}, u8[0])",
        "__cudnn$fhmaBmmBmmBackward",
        attention(backward=True),
    )
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (2 * 64 + 2 * 48)
    assert count.recomputed_flops == 0


def test_fp8_attention_takes_the_gradient_after_the_output():
    scalars = "; ".join(["f32[1,1,1,1]"] * 12)
    q, out = "f8e4m3fn[2,16,4,64]", "f8e4m3fn[2,16,4,48]"
    count = call(
        f"{q}; f8e4m3fn[2,32,4,64]; f8e4m3fn[2,32,4,48]; {out}; {out}; {STATS}; {scalars}",
        f"({q}, f8e4m3fn[2,32,4,64], f8e4m3fn[2,32,4,48], f32[1,1,1,1], u8[0])",
        "__cudnn$fmhaSoftmaxBackwardF8",
        attention(backward=True),
    )
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (3 * 64 + 2 * 48)
    assert count.dtypes == ("f8e4m3fn", "f8e4m3fn")


BSHD = "bf16[2,16,4,64]; bf16[2,32,2,64]; bf16[2,32,2,48]"


@pytest.mark.parametrize("causal", ["true", "false"])
def test_aiter_attention_is_aligned_at_the_end(causal):
    count = read(BSHD, "(bf16[2,16,4,48], f32[2,4,16])", "MhaFwdUnifiedJA", causal)
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (64 + 48)
    visible = sum(i + 1 + 16 for i in range(16))
    expected = 2 * (2 * 4) * visible * (64 + 48) if causal == "true" else None
    assert count.masked_flops == expected


def test_aiter_attention_backward_has_the_gradient_first():
    operands = f"bf16[2,16,4,48]; {BSHD}; bf16[2,16,4,48]"
    count = read(operands, "(bf16[2,16,4,64], u8[0])", "MhaBwdUnifiedJA", "false")
    assert count.flops == 2 * (2 * 4) * (16 * 32) * (3 * 64 + 2 * 48)


def test_packed_aiter_attention_is_an_upper_bound():
    operands = "bf16[100,4,64]; bf16[120,2,64]; bf16[120,2,48]; s32[3]; s32[3]"
    text = "{is_causal = true, max_seqlen_k = 50 : i64}"
    count = read_custom_call(custom_call(operands, "bf16[100,4,48]", "MhaFwdUnifiedJA", text))
    assert (count.flops, count.basis) == (2 * 4 * 100 * 50 * (64 + 48), Basis.BOUNDED)


def read(operands, result, target, causal):
    text = f"{{is_causal = {causal}, window_size_left = -1 : i64}}"
    return read_custom_call(custom_call(operands, result, target, text))


@pytest.mark.parametrize(
    ("target", "lhs"),
    [
        ("GemmFwdJA", "bf16[64,128]"),
        ("GemmA8W8JA", "s8[64,128]"),
        ("WvSplitKQJA", "f8e4m3fn[64,128]"),
        ("GemmFp4FwdJA", "u8[64,64]"),  # two elements a byte
        ("GemmFp4FwdJA", "f4e2m1fn[64,128]"),
    ],
)
def test_aiter_products(target, lhs):
    count = call(f"{lhs}; {lhs.replace('64,', '32,', 1)}", "(bf16[64,32], u32[16,64])", target)
    assert (count.kind, count.flops) == (Kind.MATMUL, 2 * 64 * 128 * 32)


@pytest.mark.parametrize(("lhs", "transposed"), [("f32[4,64,128]", False), ("f32[4,128,64]", True)])
def test_onednn_products(lhs, transposed):
    config = {"onednn_matmul_config": {"transpose_a": transposed}}
    count = call(f"{lhs}; f32[4,128,32]", "(f32[4,64,32], u8[64])", "__onednn$matmul", config)
    assert count.flops == 2 * 4 * 64 * 128 * 32


def test_onednn_convolutions_with_and_without_their_labels():
    count = call(f"{X}; {W}", Y, "__onednn$convolution", {}, CONVOLUTION)
    assert count.flops == EXPECTED
    assert call(f"{X}; {W}", Y, "__onednn$convolution", {}).flops is None


@pytest.mark.parametrize(
    ("algorithm", "result", "expected"),
    [
        ("ALG_UNSET", "bf16[8,6]", "bf16"),
        ("ALG_UNSET", "f32[8,6]", "f32"),
        ("ALG_DOT_BF16_BF16_F32_X3", "bf16[8,6]", "f32"),
        ("ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM", "bf16[8,6]", "f32"),
        ("ALG_DOT_F16_F16_F16", "f32[8,6]", "f16"),
    ],
)
def test_sums_are_kept_as_the_algorithm_says_or_else_as_the_result(algorithm, result, expected):
    config = gemm([1], [0]) | {"precision_config": {"algorithm": algorithm}}
    count = call("bf16[8,4]; bf16[4,6]", result, "__cublas$gemm", config)
    assert count.accumulation == expected


def test_a_pallas_kernel_costs_what_its_author_says_and_says_so():
    count = call(
        "s32[1]; bf16[8,8]",
        "bf16[8,8]",
        "tpu_custom_call",
        {"custom_call_config": {"body": "AAAA", "cost_estimate": {"flops": "1024"}}},
    )
    assert count == Count(Kind.KERNEL, 1024, Basis.MODELLED, "kernel author's estimate", ("bf16",))


def test_a_pallas_kernel_without_an_estimate_is_unknown():
    read = call("bf16[8,8]", "bf16[8,8]", "tpu_custom_call", {"custom_call_config": {"body": "A"}})
    assert read == Unmodelled("its author recorded no cost")


@pytest.mark.parametrize(
    "target",
    [
        "Sharding",
        "SPMDFullToShardShape",
        "MoveToHost",
        "annotate_device_placement",
        "AllocateBuffer",
        "X64SplitLow",
        "AsyncCollectiveStart",
        "xla_ffi_python_cpu_callback",
        "xla_python_gpu_callback",
        "xla_ffi_partitioned_python_gpu_callback",
        "__cudnn$norm",
        "__cudnn$convReorderFilter",
        "__gpu$TopK",
        "TopK",
        "cu_threefry2x32_ffi",
        "te_norm_forward_ffi",
        "xla.sdy.FuncResultSharding",
    ],
)
def test_calls_that_move_mark_or_normalize_hold_no_products(target):
    assert isinstance(call("f32[4]", "f32[4]", target), NoProducts)


@pytest.mark.parametrize(
    "target",
    [
        "__gpu$xla.gpu.triton",
        "mosaic_gpu_v2",
        "triton_kernel_call",
        "cusolver_csrlsvqr_ffi",
        "my_Sharding",
        "",
    ],
)
def test_every_other_call_is_unknown(target):
    assert call("f32[4]", "f32[4]", target) == Unmodelled("no model for this target")
