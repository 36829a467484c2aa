"""Texts of the attribute messages: windows, dimension numbers, metadata and the like.

Each function takes one message (or a repeated field) and gives what XLA
prints behind ``key=``, or several keys with their texts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from hloscope.ir.proto.escape import dictionary_or_string, quoted
from hloscope.ir.proto.schema import enum_name

__all__ = [
    "aliasing_text",
    "convolution_text",
    "dot_texts",
    "enum_text",
    "flag_text",
    "float_text",
    "frontend_attributes_text",
    "gather_texts",
    "integers_text",
    "metadata_text",
    "options_texts",
    "origin_text",
    "padding_text",
    "pairs_text",
    "precision_texts",
    "replication_text",
    "result_accuracy_text",
    "scales_text",
    "scatter_texts",
    "shuffle_texts",
    "slices_text",
    "sparsity_text",
    "statistics_text",
    "window_text",
]


def integers_text(numbers: Iterable[int]) -> str:
    """``{0,1}``."""
    return f"{{{','.join(map(str, numbers))}}}"


def flag_text(value: bool) -> str:
    """``true`` or ``false``."""
    return "true" if value else "false"


def float_text(value: float) -> str:
    """The shortest decimal that reads back as the same float32."""
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        if struct.pack("<f", float(text)) == struct.pack("<f", value):
            return text
    return f"{value:.9g}"


def enum_text(enum: str, prefix: str = "", *, lower: bool = False) -> Callable[[int], str]:
    """A function that spells a value of an enum, without a prefix, maybe in lower case."""

    def text(value: int) -> str:
        name = enum_name(enum, value).removeprefix(prefix)
        return name.lower() if lower else name

    return text


def window_text(window: Any) -> str | None:
    """``{size=3x3 pad=1_1x1_1}``: fields that are at their default everywhere are left out."""
    dimensions = window.dimensions
    if not dimensions:
        return None

    def joined(values: Iterable[object]) -> str:
        return "x".join(map(str, values))

    parts = [f"size={joined(d.size for d in dimensions)}"]
    if any(d.stride != 1 for d in dimensions):
        parts.append(f"stride={joined(d.stride for d in dimensions)}")
    if any(d.padding_low or d.padding_high for d in dimensions):
        parts.append(f"pad={joined(f'{d.padding_low}_{d.padding_high}' for d in dimensions)}")
    if any(d.base_dilation != 1 for d in dimensions):
        parts.append(f"lhs_dilate={joined(d.base_dilation for d in dimensions)}")
    if any(d.window_dilation != 1 for d in dimensions):
        parts.append(f"rhs_dilate={joined(d.window_dilation for d in dimensions)}")
    if any(d.window_reversal for d in dimensions):
        parts.append(f"rhs_reversal={joined(int(d.window_reversal) for d in dimensions)}")
    return f"{{{' '.join(parts)}}}"


def convolution_text(numbers: Any) -> str:
    """``b01f_01io->b01f``.

    Raises:
        ValueError: Two roles fall on one dimension, or a dimension has none.
    """

    def labels(roles: dict[str, int], spatial: Iterable[int]) -> str:
        placed = {position: letter for letter, position in roles.items()}
        placed |= {position: str(k) for k, position in enumerate(spatial)}
        if sorted(placed) != list(range(len(roles) + len(tuple(spatial)))):
            raise ValueError("the convolution's dimension numbers do not name each dimension once")
        return "".join(placed[k] for k in range(len(placed)))

    lhs = labels(
        {"b": numbers.input_batch_dimension, "f": numbers.input_feature_dimension},
        tuple(numbers.input_spatial_dimensions),
    )
    kernel = labels(
        {
            "i": numbers.kernel_input_feature_dimension,
            "o": numbers.kernel_output_feature_dimension,
        },
        tuple(numbers.kernel_spatial_dimensions),
    )
    result = labels(
        {"b": numbers.output_batch_dimension, "f": numbers.output_feature_dimension},
        tuple(numbers.output_spatial_dimensions),
    )
    return f"{lhs}_{kernel}->{result}"


def dot_texts(numbers: Any) -> dict[str, str]:
    """The four lists of a dot; batch dimensions only where there are any."""
    texts = {
        "lhs_batch_dims": numbers.lhs_batch_dimensions,
        "lhs_contracting_dims": numbers.lhs_contracting_dimensions,
        "rhs_batch_dims": numbers.rhs_batch_dimensions,
        "rhs_contracting_dims": numbers.rhs_contracting_dimensions,
    }
    return {key: integers_text(dims) for key, dims in texts.items() if dims or "contracting" in key}


def gather_texts(numbers: Any) -> dict[str, str]:
    """Dimension numbers of a gather."""
    texts = {
        "offset_dims": integers_text(numbers.offset_dims),
        "collapsed_slice_dims": integers_text(numbers.collapsed_slice_dims),
        "start_index_map": integers_text(numbers.start_index_map),
    }
    if numbers.operand_batching_dims:
        texts["operand_batching_dims"] = integers_text(numbers.operand_batching_dims)
    if numbers.start_indices_batching_dims:
        texts["start_indices_batching_dims"] = integers_text(numbers.start_indices_batching_dims)
    return texts | {"index_vector_dim": str(numbers.index_vector_dim)}


def scatter_texts(numbers: Any) -> dict[str, str]:
    """Dimension numbers of a scatter."""
    texts = {
        "update_window_dims": integers_text(numbers.update_window_dims),
        "inserted_window_dims": integers_text(numbers.inserted_window_dims),
        "scatter_dims_to_operand_dims": integers_text(numbers.scatter_dims_to_operand_dims),
    }
    if numbers.input_batching_dims:
        texts["input_batching_dims"] = integers_text(numbers.input_batching_dims)
    if numbers.scatter_indices_batching_dims:
        batching = numbers.scatter_indices_batching_dims
        texts["scatter_indices_batching_dims"] = integers_text(batching)
    return texts | {"index_vector_dim": str(numbers.index_vector_dim)}


def precision_texts(config: Any) -> dict[str, str]:
    """``operand_precision`` where it is not the default, and a dot's ``algorithm``."""
    texts = {}
    if any(config.operand_precision):
        spell = enum_text("Precision", lower=True)
        texts["operand_precision"] = f"{{{','.join(map(spell, config.operand_precision))}}}"
    if config.algorithm:
        texts["algorithm"] = enum_text("Algorithm", "ALG_", lower=True)(config.algorithm)
    return texts


def sparsity_text(config: Any) -> str | None:
    """``{lhs={sparsity=2x4 dimension=1 stride=1 idx=2}}``: which operands are structured sparse."""

    def side(tensor: Any) -> str:
        return (
            f"{{sparsity={tensor.num_non_zero}x{tensor.block_size} "
            f"dimension={tensor.dimension} stride={tensor.stride} idx={tensor.idx}}}"
        )

    return _sides(config, side)


def scales_text(config: Any) -> str | None:
    """``{lhs={scale_idx=2 strides=1 steps=32}}``: which operands hold block scales."""

    def side(tensor: Any) -> str:
        parts = [f"scale_idx={tensor.scale_idx}"]
        if tensor.HasField("zero_idx"):
            parts.append(f"zero_idx={tensor.zero_idx}")
        if tensor.strides:
            parts.append(f"strides={'x'.join(map(str, tensor.strides))}")
        if tensor.steps:
            parts.append(f"steps={'x'.join(map(str, tensor.steps))}")
        return f"{{{' '.join(parts)}}}"

    return _sides(config, side)


def _sides(config: Any, text: Callable[[Any], str]) -> str | None:
    sides = [
        f"{key}={text(getattr(config, key))}" for key in ("lhs", "rhs") if config.HasField(key)
    ]
    return f"{{{' '.join(sides)}}}" if sides else None


def shuffle_texts(mode: Any) -> dict[str, str]:
    """How a shuffle moves its elements; rotation is the one way there is."""
    if not mode.HasField("rotate"):
        return {}
    return {"mode": "rotate", "shifts": integers_text(mode.rotate.shifts)}


def slices_text(slices: Any) -> str:
    """``{[0:2], [0:8:2]}``."""
    parts = (
        f"[{d.start}:{d.limit}]" if d.stride == 1 else f"[{d.start}:{d.limit}:{d.stride}]"
        for d in slices
    )
    return f"{{{', '.join(parts)}}}"


def padding_text(config: Any) -> str:
    """``0_1x2_2_1``; the interior padding only where some dimension has it."""
    interior = any(d.interior_padding for d in config.dimensions)
    return "x".join(
        f"{d.edge_padding_low}_{d.edge_padding_high}"
        + (f"_{d.interior_padding}" if interior else "")
        for d in config.dimensions
    )


def pairs_text(pairs: Any) -> str:
    """``{{0,1},{1,2}}``."""
    return "{" + ",".join(f"{{{pair.source},{pair.target}}}" for pair in pairs) + "}"


def aliasing_text(entries: Any) -> str:
    """``{{0}: (0, {})}``: which result shares which operand's buffer."""
    parts = (
        f"{integers_text(entry.output_shape_index)}: "
        f"({entry.operand_index}, {integers_text(entry.operand_shape_index)})"
        for entry in entries
    )
    return f"{{{', '.join(parts)}}}"


def options_texts(options: Any) -> dict[str, str]:
    """Options of a triangular solve or a Cholesky decomposition: those that are set."""
    return {
        field.name: enum_name("Transpose", value)
        if field.name == "transpose_a"
        else flag_text(value)
        for field, value in options.ListFields()
    }


def replication_text(replication: Any) -> str:
    """``{true,false}``, a flag for each leaf of a parameter."""
    return f"{{{','.join(map(flag_text, replication.replicated_at_leaf_buffers))}}}"


def frontend_attributes_text(attributes: Any) -> str | None:
    """``{key="value"}`` in the order of the keys; values that are JSON stay bare."""
    values = {entry.key: entry.value for entry in attributes.map}
    if not values:
        return None
    parts = (f"{key}={dictionary_or_string(values[key])}" for key in sorted(values))
    return f"{{{','.join(parts)}}}"


def statistics_text(statistics: Any) -> str | None:
    """``{visualizing_index=0,x=1}``."""
    if not statistics.statistics:
        return None
    values = (f"{entry.stat_name}={entry.stat_val:g}" for entry in statistics.statistics)
    return f"{{visualizing_index={statistics.stat_index_to_visualize},{','.join(values)}}}"


def result_accuracy_text(accuracy: Any) -> str | None:
    """``{mode=highest}`` or ``{tolerance={atol=0,rtol=0,ulps=2}}``."""
    if accuracy.HasField("tolerance"):
        limits = accuracy.tolerance
        return f"{{tolerance={{atol={limits.atol:g},rtol={limits.rtol:g},ulps={limits.ulps}}}}}"
    if accuracy.HasField("mode") and accuracy.mode:
        return f"{{mode={enum_text('ResultAccuracyMode', lower=True)(accuracy.mode)}}}"
    return None


def origin_text(value: Any) -> str | None:
    """``{({"a" {0}}, {"b"})}``: which arrays before optimization the leaves of a result were."""
    if not value.elements and not value.HasField("call_hierarchy"):
        return None
    rows = [(tuple(e.shape_index), _origin_leaf(e)) for e in value.elements]
    inside = _origin_tree(rows, 0) if rows else "()"
    if value.HasField("call_hierarchy"):
        inside += f",[{quoted(value.call_hierarchy)}]"
    return f"{{{inside}}}"


def _origin_leaf(element: Any) -> str:
    if not element.HasField("original_array"):
        return "{}"
    index = element.original_array.shape_index
    name = quoted(element.original_array.instruction_name)
    return f"{{{name} {integers_text(index)}}}" if index else f"{{{name}}}"


def _origin_tree(rows: list[tuple[tuple[int, ...], str]], depth: int) -> str:
    """Leaves in brackets that follow their indices; a leaf's index ends at its depth."""
    if len(rows[0][0]) <= depth:
        return rows[0][1]
    members: dict[int, list[tuple[tuple[int, ...], str]]] = {}
    for index, leaf in rows:
        if len(index) > depth:
            members.setdefault(index[depth], []).append((index, leaf))
    return f"({', '.join(_origin_tree(group, depth + 1) for group in members.values())})"


_METADATA = (
    "op_type",
    "op_name",
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "profile_type",
    "size_of_generated_code_in_bytes",
    "size_of_memory_working_set_in_bytes",
    "deduplicated_name",
    "scheduling_name",
    "stack_frame_id",
)


def metadata_text(metadata: Any) -> str:
    """``op_name="..." stack_frame_id=3``: the fields that are set, without braces."""
    fields = {field.name: value for field, value in metadata.ListFields()}
    return " ".join(f"{name}={_field_text(fields[name])}" for name in _METADATA if name in fields)


def _field_text(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, int) else integers_text(value)
