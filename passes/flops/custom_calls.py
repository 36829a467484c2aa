"""What each custom call is: a product, something without products, or unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from hloscope.ir import Instruction
from hloscope.passes.flops.attention import count_cudnn_attention
from hloscope.passes.flops.counts import Count
from hloscope.passes.flops.cudnn_conv import count_cudnn_convolution
from hloscope.passes.flops.gemm_calls import (
    count_block_scaled_dot,
    count_gemm,
    count_grouped_gemm,
)
from hloscope.passes.flops.kernel_estimate import count_by_author

__all__ = ["NoProducts", "Unmodelled", "read_custom_call"]


@dataclass(frozen=True, slots=True)
class NoProducts:
    """A custom call that is known to hold no products; says what it is for."""

    purpose: str


@dataclass(frozen=True, slots=True)
class Unmodelled:
    """A custom call of which nothing is known but its target and shapes."""

    reason: str


_NO_MODEL = Unmodelled("no model for this target")

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
    (re.compile(r"tpu_custom_call"), count_by_author),
)

_PURPOSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "marks how data is laid over devices",
        re.compile(
            r"Sharding|SPMD(FullToShard|ShardToFull)Shape|(LocalToGlobal|GlobalToLocal)Shape"
            r"|InspectSharding|xla\.sdy\..*"
        ),
    ),
    (
        "moves data between memories",
        re.compile(r"MoveTo(Host|Device)|PinToDevice(Sram)?|annotate_device_placement"),
    ),
    (
        "moves or relabels data",
        re.compile(
            r"AllocateBuffer|CreateBuffer|ConcatBitcast|SliceToDynamic|PadToStatic"
            r"|AssumeGatherIndicesInBound|GatherScatterIndicesBitpacked|X64(SplitLow|SplitHigh|Combine)|DynamicGte.*"
            r"|__cudnn\$convReorderFilter(AndBias)?|(cu|hip)_lu_pivots_to_permutation"
        ),
    ),
    (
        "starts or ends asynchronous work that stands elsewhere",
        re.compile(r"AsyncCollective(Start|Done)|PrepareAsyncCall(Start|Done)"),
    ),
    ("moves data between devices", re.compile(r"ragged_all_to_all|te_ep_\w+_ffi")),
    ("marks a place", re.compile(r"Noop|__xla_internal_call_marker_.*|Annotate.*Marker")),
    (
        "calls Python on the host",
        re.compile(r"xla(_ffi)?(_partitioned)?_python_(cpu|gpu)_callback"),
    ),
    ("normalizes", re.compile(r"__cudnn\$norm|te_norm_(forward|backward)_ffi")),
    (
        "selects or sorts",
        re.compile(
            r"TopK|__gpu\$TopK|PartialReduce|__cub\$DeviceRadixSort"
            r"|xla\.gpu\.ext\.cub_(sort|scan)\w*|te_(fused_)?topk\w*_ffi"
        ),
    ),
    ("makes random bits", re.compile(r"(cu|hip)_threefry2x32(_ffi)?")),
    (
        "converts or activates elementwise",
        re.compile(
            r"__op\$(de)?quantize"
            r"|te_(act_lu|dact_dbias_quantize|dbias_quantize|rht_amax)_ffi"
            r"|te_grouped_(quantize\w*|gemm_d2h_group_sizes)_ffi"
            r"|te_scaled_\w*softmax_(forward|backward)_ffi"
        ),
    ),
)


def read_custom_call(instruction: Instruction) -> Count | NoProducts | Unmodelled:
    """Count a custom call, or say what it is for, or that nothing is known of it.

    Raises:
        IndexError: It is of a known family but its operands do not fit it.
        ValueError: Likewise.
    """
    target = instruction.custom_call_target or ""
    for pattern, counter in _PRODUCTS:
        if pattern.fullmatch(target):
            count = counter(instruction)
            return count if count is not None else Unmodelled("its author recorded no cost")
    for purpose, pattern in _PURPOSES:
        if pattern.fullmatch(target):
            return NoProducts(purpose)
    return _NO_MODEL
