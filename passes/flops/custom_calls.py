"""What each custom call is: a product, something without products, or unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from hloscope.ir import Instruction
from hloscope.passes.flops.aiter import count_aiter_attention, count_aiter_gemm
from hloscope.passes.flops.counts import Count, Kind, NoProducts, Unmodelled, unknown
from hloscope.passes.flops.cudnn_attention import count_cudnn_attention
from hloscope.passes.flops.cudnn_conv import count_cudnn_convolution
from hloscope.passes.flops.gemm_calls import (
    count_block_scaled_dot,
    count_gemm,
    count_grouped_gemm,
)
from hloscope.passes.flops.kernel_estimate import count_by_author
from hloscope.passes.flops.linear_algebra import (
    LIBRARY_CALL,
    TPU_CALL,
    count_library_call,
    count_tpu_call,
)
from hloscope.passes.flops.normalization import count_normalization
from hloscope.passes.flops.onednn import count_onednn_convolution, count_onednn_matmul
from hloscope.passes.flops.registered import load_entry_points, read_registered
from hloscope.passes.flops.transformer_engine import (
    count_te_attention,
    count_te_gemm,
    count_te_grouped_gemm,
)

__all__ = ["NoProducts", "Unmodelled", "elementwise_work", "read_custom_call"]

_PRODUCTS: tuple[tuple[re.Pattern[str], Callable[[Instruction], Count | None]], ...] = (
    (re.compile(r"__cublas\$(gemm|lt\$matmul(\$f8|\$mx)?)"), count_gemm),
    (re.compile(r"__cublas\$lt\$groupedMatmul"), count_grouped_gemm),
    (re.compile(r"__(cudnn\$blockScaledDot|op\$block_scaled_dot)"), count_block_scaled_dot),
    (
        re.compile(
            r"__cudnn\$conv(Forward|ForwardGraph|BackwardInput|BackwardFilter"
            r"|BiasActivationForward)"
        ),
        count_cudnn_convolution,
    ),
    # Builds of 2023 spell it fhma.
    (re.compile(r"__cudnn\$f(mha|hma)\w+"), count_cudnn_attention),
    (
        re.compile(r"te_fused_attn_(score_mod_)?(forward|backward)_ffi"),
        count_te_attention,
    ),
    (re.compile(r"te_gemm(_v2)?_ffi"), count_te_gemm),
    (re.compile(r"te_grouped_gemm(_v2)?_ffi"), count_te_grouped_gemm),
    (re.compile(r"Mha(Fwd|Bwd)UnifiedJA"), count_aiter_attention),
    (
        re.compile(r"Gemm(Fwd|A8W8|Fp8Mi350Fwd|Fp4Fwd|I8Fwd)JA|FlatmmFp8FwdJA|WvSplitKQJA"),
        count_aiter_gemm,
    ),
    (re.compile(r"__onednn\$matmul"), count_onednn_matmul),
    (re.compile(r"__onednn\$convolution"), count_onednn_convolution),
    (LIBRARY_CALL, count_library_call),
    (TPU_CALL, count_tpu_call),
    (re.compile(r"tpu_custom_call"), count_by_author),
)

# What is known to hold no products: its purpose, whether it computes elementwise.
_PURPOSES: tuple[tuple[str, bool, re.Pattern[str]], ...] = (
    (
        "marks how data is laid over devices",
        False,
        re.compile(
            r"Sharding|SPMD(FullToShard|ShardToFull)Shape|(LocalToGlobal|GlobalToLocal)Shape"
            r"|InspectSharding|xla\.sdy\..*"
        ),
    ),
    (
        "moves data between memories",
        False,
        re.compile(r"MoveTo(Host|Device)|PinToDevice(Sram)?|annotate_device_placement"),
    ),
    (
        "moves or relabels data",
        False,
        re.compile(
            r"AllocateBuffer|CreateBuffer|ConcatBitcast|SliceToDynamic|PadToStatic"
            r"|AssumeGatherIndicesInBound|GatherScatterIndicesBitpacked"
            r"|X64(SplitLow|SplitHigh|Combine)|DynamicGte.*|__onednn\$matmul_reorder"
            r"|__cudnn\$convReorderFilter(AndBias)?|(cu|hip)_lu_pivots_to_permutation"
            r"|te_\w*permut\w*_triton"
        ),
    ),
    (
        "starts or ends asynchronous work that stands elsewhere",
        False,
        re.compile(r"AsyncCollective(Start|Done)|PrepareAsyncCall(Start|Done)"),
    ),
    ("moves data between devices", False, re.compile(r"ragged_all_to_all|te_ep_\w+_ffi")),
    (
        "marks a place",
        False,
        re.compile(r"Noop|__xla_internal_call_marker_.*|Annotate.*Marker|te_inspect_ffi"),
    ),
    (
        "calls Python on the host",
        False,
        re.compile(r"xla(_ffi)?(_partitioned)?_python_(cpu|gpu)_callback"),
    ),
    (
        "normalizes",
        True,
        re.compile(
            r"__cudnn\$norm|__onednn\$(layernorm|softmax)|RmsnormFwdJA"
            r"|te_norm_(forward|backward)_ffi|te_scaled_\w*softmax_(forward|backward)_ffi"
        ),
    ),
    (
        "selects or sorts",
        False,
        re.compile(
            r"TopK|__gpu\$TopK|PartialReduce|__cub\$DeviceRadixSort"
            r"|xla\.gpu\.ext\.cub_(sort|scan)\w*|te_(fused_)?topk\w*_ffi"
        ),
    ),
    ("makes random bits", True, re.compile(r"(cu|hip)_threefry2x32(_ffi)?")),
    (
        "converts or activates elementwise",
        True,
        re.compile(
            r"__op\$(de)?quantize"
            r"|te_(act_lu|dact_dbias_quantize|dbias_quantize|rht_amax)_ffi"
            r"|te_fused_moe_aux_loss\w*_ffi|te_grouped_quantize\w*_ffi"
        ),
    ),
    ("copies sizes to the host", False, re.compile(r"te_grouped_gemm_d2h_group_sizes_ffi")),
)


def read_custom_call(instruction: Instruction) -> Count | NoProducts | Unmodelled:
    """Count a custom call, or say what it is for, or that nothing is known of it.

    Models that users registered are asked first.

    Raises:
        IndexError: It is of a known family but its operands do not fit it.
        ValueError: Likewise.
        Unavailable: A size has no upper bound.
    """
    registered = read_registered(instruction)
    if registered is not None:
        return registered
    target = instruction.custom_call_target or ""
    counter = _counter(target)
    if counter is not None:
        count = counter(instruction)
        return count if count is not None else Unmodelled("its author recorded no cost")
    purpose = _purpose(target)
    if purpose is not None:
        return purpose
    return Unmodelled("; ".join(["no model for this target", *load_entry_points()]))


def elementwise_work(instruction: Instruction) -> Count | None:
    """The elementwise arithmetic of a custom call without products.

    ``None`` for a call that computes nothing, or whose elementwise part (a
    bias, an activation, a softmax) belongs to the product that it counts as.
    Unknown for a call that computes something without a model.
    """
    target = instruction.custom_call_target or ""
    if read_registered(instruction) is not None or _counter(target) is not None:
        return None
    purpose = _purpose(target)
    if purpose is None:
        return unknown(Kind.OTHER, "no model for this target")
    if not purpose.arithmetic:
        return None
    count = count_normalization(instruction)
    return count or unknown(Kind.ELEMENTWISE, f"{purpose.purpose}, without a model")


@cache
def _counter(target: str) -> Callable[[Instruction], Count | None] | None:
    found = (counter for pattern, counter in _PRODUCTS if pattern.fullmatch(target))
    return next(found, None)


@cache
def _purpose(target: str) -> NoProducts | None:
    for purpose, arithmetic, pattern in _PURPOSES:
        if pattern.fullmatch(target):
            return NoProducts(purpose, arithmetic)
    return None
