"""Categories of work, and what a kernel's name says of it where nothing else does.

Names are the last resort: a fusion is called after its root alone, and libraries call
their kernels as they like. Patterns stand in the order in which they are tried, so that
``reduce-scatter`` is a collective and ``splitKreduce_kernel`` a part of a product.
"""

from __future__ import annotations

import re
from enum import StrEnum

__all__ = ["Category", "category_of_name"]


class Category(StrEnum):
    """What a kernel or an operation does."""

    GEMM = "gemm"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    CONVERT = "convert"
    LAYOUT = "copy and layout"
    SCATTER = "scatter and gather"
    SORT = "sort"
    RANDOM = "random"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    PERMUTE = "collective-permute"
    COLLECTIVE = "other collective"
    HOST_TO_DEVICE = "memcpy host to device"
    DEVICE_TO_HOST = "memcpy device to host"
    DEVICE_TO_DEVICE = "memcpy on the device"
    PEER_TO_PEER = "memcpy between devices"
    COPY = "memcpy"
    MEMSET = "memset"
    IN_FLIGHT = "asynchronous copy"
    LINEAR_ALGEBRA = "linear algebra"
    KERNEL = "custom kernel"
    CONTROL = "control flow"
    GRAPH = "CUDA graph"
    OTHER = "other"

    @property
    def is_communication(self) -> bool:
        """Whether devices exchange data in it."""
        return self in _COMMUNICATION

    @property
    def is_copy(self) -> bool:
        """Whether it only moves or clears memory, by a copy engine or for the host."""
        return self in _COPIES


_COMMUNICATION = frozenset(
    {
        Category.ALL_REDUCE,
        Category.ALL_GATHER,
        Category.REDUCE_SCATTER,
        Category.ALL_TO_ALL,
        Category.PERMUTE,
        Category.COLLECTIVE,
    }
)
_COPIES = frozenset(
    {
        Category.HOST_TO_DEVICE,
        Category.DEVICE_TO_HOST,
        Category.DEVICE_TO_DEVICE,
        Category.PEER_TO_PEER,
        Category.COPY,
        Category.MEMSET,
        Category.IN_FLIGHT,
    }
)

_PATTERNS = tuple(
    (category, re.compile(pattern))
    for category, pattern in (
        (
            Category.REDUCE_SCATTER,
            r"(nccl|rccl|msccl)\w*reduce_?scatter|^reduce[-_]scatter|psum_scatter",
        ),
        (
            Category.ALL_REDUCE,
            r"(nccl|rccl|msccl)\w*all_?reduce|^all[-_]reduce|^psum|all_reduce_kernel",
        ),
        (Category.ALL_GATHER, r"(nccl|rccl|msccl)\w*all_?gather|^all[-_]gather"),
        (
            Category.ALL_TO_ALL,
            r"(nccl|rccl|msccl)\w*all_?to_?all|(^|ragged)[-_]?all[-_]?to[-_]?all",
        ),
        (Category.PERMUTE, r"(nccl|rccl|msccl)\w*send_?recv|^collective[-_]permute|^ppermute"),
        (
            Category.COLLECTIVE,
            r"nccl|rccl|msccl|nvshmem|^async[-_]collective|^(send|recv)([-_.]|$)",
        ),
        (Category.GRAPH, r"^cuda_?graph"),
        (
            Category.IN_FLIGHT,
            r"^(copy|slice|dynamic[-_]slice|dynamic[-_]update[-_]slice)[-_](start|done)([-_.]|$)",
        ),
        (Category.HOST_TO_DEVICE, r"memcpy_?(h2d|htod)|copyhosttodevice"),
        (Category.DEVICE_TO_HOST, r"memcpy_?(d2h|dtoh)|copydevicetohost"),
        (Category.PEER_TO_PEER, r"memcpy_?p2p|copypeertopeer"),
        (Category.DEVICE_TO_DEVICE, r"memcpy_?(d2d|dtod)|copydevicetodevice"),
        (Category.MEMSET, r"memset|fillbuffer"),
        (Category.COPY, r"memcpy|rocclr_copybuffer|^copybuffer"),
        (
            Category.ATTENTION,
            r"sdpa|flash[-_]?(attention|fwd|bwd|attn)|fmha|splash|mha_(fwd|bwd)|paged_attention",
        ),
        (
            Category.CONVOLUTION,
            r"implicit_(convolve|gemm)|xmma_(fprop|dgrad|wgrad)|(fprop|dgrad|wgrad)|cudnn::cnn"
            r"|winograd|conv2d|conv3d|miopen\w*conv|igemm_|convolutionforward|conv_depthwise"
            r"|cudnn[-_$]conv|^conv(olution)?[-_.\d]|cutlass::conv::|implicitgemm",
        ),
        (Category.LAYOUT, r"nchwto|nhwcto|foldednhwc|converttensor_kernel|batched_transpose"),
        (
            Category.GEMM,
            r"gemm|^nvjet|cutlass|cijk_|^ck::|gemv|splitkreduce|cublas|hipblaslt|wv_splitk"
            r"|dot_general|^dot[-_.\d]|^dot$|dot_kernel|s\d+816|h884|magma_",
        ),
        (Category.REDUCTION, r"(layer|rms)_?norm|::bn_|softmax"),
        (Category.SORT, r"sort|device_?scan|topk|raftselect|radix"),
        (Category.RANDOM, r"threefry|philox|rng"),
        (Category.REDUCTION, r"reduce"),
        (Category.SCATTER, r"scatter|gather"),
        (
            Category.LAYOUT,
            r"transpose|^(wrapped_|loop_)?(copy|slice|concatenate|pad|dynamic_(update_)?slice)"
            r"|concatenate_fusion|dynamic_(update_)?slice_fusion|copy_fusion",
        ),
        (Category.CONVERT, r"^(wrapped_|loop_)?convert"),
        (Category.LINEAR_ALGEBRA, r"potrf|getrf|syevj|geqr|trsm|cusolver|gesvd"),
        (
            Category.ELEMENTWISE,
            r"^(loop|input)_|^wrapped_|^fusion|fusion(_\d+)?$|^(add|multiply|select|broadcast|iota"
            r"|subtract|divide|maximum|minimum|compare|exponential|tanh|log|power|rsqrt)",
        ),
        (Category.CONTROL, r"^(while|call|conditional)([-_.\d]|$)"),
    )
)
_TEMPLATES = re.compile(r"<[^<>]*>")
# Entries that say nothing themselves: what they run stands in their template.
_ENTRY = re.compile(r"cutlass\w*::(device_)?kernel\d*\(|cutlass\w*::(device_)?kernel\d*$")
_SUFFIX = re.compile(r"(\.kd)$")


def category_of_name(name: str) -> Category:
    """What a kernel does, by its name alone.

    Args:
        name: As the tracer has it, C++ templates and all.
    """
    plain = name.removeprefix("void ")
    # What stands in templates says more of types than of work, but names some kernels.
    bare = _bare(plain)
    for text in (plain.lower(),) if _ENTRY.match(bare) else (bare, plain.lower()):
        for category, pattern in _PATTERNS:
            if pattern.search(text):
                return category
    return Category.OTHER


def _bare(name: str) -> str:
    """Without templates and the tracer's suffixes, in lower case."""
    shorter, before = name, ""
    while shorter != before:
        before, shorter = shorter, _TEMPLATES.sub("", shorter)
    return _SUFFIX.sub("", shorter).lower()
