"""The attributes of a HloInstructionProto in XLA's own text spelling.

Printing them lets one set of typed readers serve text and protobuf alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloscope.errors import InputError
from hloscope.ir.dtypes import is_complex, is_floating
from hloscope.ir.literal import Literal
from hloscope.ir.module import Computation, Instruction
from hloscope.ir.proto.escape import dictionary_or_string, quoted
from hloscope.ir.proto.literals import read_literal
from hloscope.ir.proto.placement import replica_groups_text, sharding_text
from hloscope.ir.proto.schema import enum_name
from hloscope.ir.proto.shapes import ShapeReader
from hloscope.ir.proto.spelling import (
    aliasing_text,
    convolution_text,
    dot_texts,
    enum_text,
    flag_text,
    float_text,
    frontend_attributes_text,
    gather_texts,
    integers_text,
    metadata_text,
    options_texts,
    origin_text,
    padding_text,
    pairs_text,
    precision_texts,
    replication_text,
    result_accuracy_text,
    scales_text,
    scatter_texts,
    shuffle_texts,
    slices_text,
    sparsity_text,
    statistics_text,
    window_text,
)
from hloscope.ir.shape import Shape

__all__ = ["InstructionFields", "Scope"]


class Scope:
    """What the instructions of one computation refer to by id.

    Attributes:
        file: What the module was read from, for messages.
        shapes: Reader of the module's shapes.
        computations: The module's computations by id.
        instructions: The computation's instructions by id.
        payloads: Byte strings that the module's instructions share.
    """

    __slots__ = ("computations", "file", "instructions", "payloads", "shapes")

    def __init__(
        self,
        file: str,
        shapes: ShapeReader,
        computations: dict[int, Computation],
        payloads: Sequence[bytes],
    ) -> None:
        self.file = file
        self.shapes = shapes
        self.computations = computations
        self.instructions: dict[int, Instruction] = {}
        self.payloads = payloads

    def payload(self, message: Any) -> bytes:
        """The bytes of a Payload, which may stand in the module's table.

        Raises:
            ValueError: The table has no such row.
        """
        if not message.HasField("id"):
            value: bytes = message.value
            return value
        if not 0 <= message.id < len(self.payloads):
            raise ValueError(f"there is no payload {message.id}")
        stored: bytes = self.payloads[message.id]
        return stored


class InstructionFields:
    """An instruction's message, printed when its attributes are asked for."""

    __slots__ = ("_message", "_scope")

    def __init__(self, message: Any, scope: Scope) -> None:
        self._message = message
        self._scope = scope

    def attributes(self) -> dict[str, str]:
        """Every attribute by key, as XLA prints it.

        Raises:
            InputError: A field refers to something that the module lacks.
        """
        message = self._message
        attributes = dict(_ALWAYS.get(message.opcode, ()))
        if message.opcode in _GROUPED:
            attributes["replica_groups"] = "{}"
        try:
            for field, value in message.ListFields():
                if one := _ONE.get(field.name):
                    key, text = one
                    if (printed := text(value)) is not None:
                        attributes[key] = printed
                elif several := _SEVERAL.get(field.name):
                    attributes |= several(value)
                elif related := _RELATED.get(field.name):
                    attributes |= related(message, self._scope)
        except ValueError as error:
            raise InputError(
                f"%{message.name} ({message.opcode}): {error}",
                place=self._scope.file,
                hint="The file is damaged, or was written by an XLA newer than this reader.",
            ) from None
        return attributes

    def literal(self, shape: Shape) -> Literal:
        """The value of a constant."""
        message = self._message
        return read_literal(message.literal, shape, name=message.name, file=self._scope.file)


_GROUPED = frozenset(
    opcode + suffix
    for opcode in (
        "all-gather",
        "all-reduce",
        "all-to-all",
        "collective-broadcast",
        "ragged-all-to-all",
        "reduce-scatter",
    )
    for suffix in ("", "-start")
)

_ALWAYS: dict[str, dict[str, str]] = {
    "batch-norm-grad": {"epsilon": "0", "feature_index": "0"},
    "batch-norm-inference": {"epsilon": "0", "feature_index": "0"},
    "batch-norm-training": {"epsilon": "0", "feature_index": "0"},
    "broadcast": {"dimensions": "{}"},
    "dot": {"lhs_contracting_dims": "{}", "rhs_contracting_dims": "{}"},
    "dynamic-slice": {"dynamic_slice_sizes": "{}"},
    "fft": {"fft_type": "FFT", "fft_length": "{}"},
    "gather": {"slice_sizes": "{}"},
    "get-tuple-element": {"index": "0"},
    "map": {"dimensions": "{}"},
    "reduce": {"dimensions": "{}"},
    "reduce-precision": {"exponent_bits": "0", "mantissa_bits": "0"},
    "reverse": {"dimensions": "{}"},
    "rng-bit-generator": {"algorithm": "rng_default"},
    "rng-get-and-update-state": {"delta": "0"},
    "slice": {"slice": "{}"},
    "sort": {"dimensions": "{}"},
    "topk": {"k": "0", "largest": "false"},
    "transpose": {"dimensions": "{}"},
}
"""Attributes that XLA prints even where the message leaves the field at its default."""


def _api_version(value: int) -> str | None:
    name = enum_name("CustomCallApiVersion", value)
    return None if name == "API_VERSION_ORIGINAL" else name


def _unless_one(value: int) -> str | None:
    return None if value == 1 else str(value)


_ONE: dict[str, tuple[str, Callable[[Any], str | None]]] = {
    "tuple_index": ("index", str),
    "window": ("window", window_text),
    "convolution_dimension_numbers": ("dim_labels", convolution_text),
    "slice_dimensions": ("slice", slices_text),
    "exponent_bits": ("exponent_bits", str),
    "mantissa_bits": ("mantissa_bits", str),
    "dynamic_slice_sizes": ("dynamic_slice_sizes", integers_text),
    "padding_config": ("padding", padding_text),
    "outfeed_config": ("outfeed_config", quoted),
    "distribution": ("distribution", enum_text("RandomDistribution", lower=True)),
    "epsilon": ("epsilon", float_text),
    "feature_index": ("feature_index", str),
    "channel_id": ("channel_id", str),
    "feature_group_count": ("feature_group_count", _unless_one),
    "batch_group_count": ("batch_group_count", _unless_one),
    "infeed_config": ("infeed_config", quoted),
    "custom_call_target": ("custom_call_target", quoted),
    "fusion_kind": ("kind", str),
    "fft_type": ("fft_type", enum_text("FftType")),
    "fft_length": ("fft_length", integers_text),
    "gather_slice_sizes": ("slice_sizes", integers_text),
    "is_host_transfer": ("is_host_transfer", flag_text),
    "source_target_pairs": ("source_target_pairs", pairs_text),
    "is_stable": ("is_stable", flag_text),
    "parameter_replication": ("parameter_replication", replication_text),
    "comparison_direction": ("direction", str),
    "custom_call_has_side_effect": ("custom_call_has_side_effect", flag_text),
    "delta": ("delta", str),
    "indices_are_sorted": ("indices_are_sorted", flag_text),
    "frontend_attributes": ("frontend_attributes", frontend_attributes_text),
    "unique_indices": ("unique_indices", flag_text),
    "rng_algorithm": ("algorithm", enum_text("RandomAlgorithm", lower=True)),
    "use_global_device_ids": ("use_global_device_ids", flag_text),
    "output_operand_aliasing": ("output_to_operand_aliasing", aliasing_text),
    "custom_call_schedule": ("schedule", enum_text("CustomCallSchedule")),
    "custom_call_api_version": ("api_version", _api_version),
    "cross_program_prefetch_index": ("cross_program_prefetch_index", str),
    "k": ("k", str),
    "largest": ("largest", flag_text),
    "statistics_viz": ("statistics", statistics_text),
    "original_value": ("origin", origin_text),
    "is_composite": ("is_composite", flag_text),
    "result_accuracy": ("result_accuracy", result_accuracy_text),
    "is_reverse": ("is_reverse", flag_text),
    "num_carries": ("num_carries", str),
    "is_associative": ("is_associative", enum_text("TriState", "TRI_STATE_", lower=True)),
    "conv_kind": (
        "convolution_kind",
        enum_text("ConvolutionKind", "CONVOLUTION_KIND_", lower=True),
    ),
    "has_dynamic_root": ("has_dynamic_root", flag_text),
    "sparsity_config": ("sparsity_config", sparsity_text),
    "block_scaling_config": ("block_scaling_config", scales_text),
}
"""Fields that print as one attribute and need nothing but their value."""

_SEVERAL: dict[str, Callable[[Any], dict[str, str]]] = {
    "dot_dimension_numbers": dot_texts,
    "gather_dimension_numbers": gather_texts,
    "precision_config": precision_texts,
    "scatter_dimension_numbers": scatter_texts,
    "shuffle_mode": shuffle_texts,
    "triangular_solve_options": options_texts,
    "cholesky_options": options_texts,
}
"""Fields that print as several attributes."""


_Related = Callable[[Any, Scope], dict[str, str]]


def _dimensions(message: Any, _scope: Scope) -> dict[str, str]:
    if message.opcode == "iota":
        return {"iota_dimension": str(message.dimensions[0])}
    return {"dimensions": integers_text(message.dimensions)}


def _called(message: Any, scope: Scope) -> dict[str, str]:
    """The attributes that name computations, which differ by opcode."""
    computations = [scope.computations[number] for number in message.called_computation_ids]
    called = [f"%{computation.name}" for computation in computations]
    opcode = message.opcode
    if opcode in ("async-update", "async-done"):
        return {}  # XLA prints the computation on the start only, and it runs only once
    if opcode == "while" and len(called) == 2:
        body, condition = called
        if _is_predicate(computations[0].root) and not _is_predicate(computations[1].root):
            body, condition = condition, body
        return {"condition": condition, "body": body}
    if opcode == "select-and-scatter" and len(called) == 2:
        return {"select": called[0], "scatter": called[1]}
    if opcode == "conditional":
        choice = scope.instructions[message.operand_ids[0]] if message.operand_ids else None
        if len(called) == 2 and choice is not None and _is_predicate(choice):
            return {"true_computation": called[0], "false_computation": called[1]}
        return {"branch_computations": f"{{{', '.join(called)}}}"}
    if opcode == "custom-call":
        return {"called_computations": f"{{{', '.join(called)}}}"}
    key = "to_apply" if opcode in _APPLIES else "calls"
    return {key: called[0] if len(called) == 1 else f"{{{', '.join(called)}}}"}


def _is_predicate(instruction: Instruction) -> bool:
    return instruction.shape.dtype == "pred" and not instruction.shape.dimensions


_APPLIES = frozenset(
    {
        "all-reduce",
        "all-reduce-start",
        "call",
        "map",
        "reduce",
        "reduce-scatter",
        "reduce-window",
        "scan",
        "scatter",
        "sort",
        "topk",
    }
)


def _control_predecessors(message: Any, scope: Scope) -> dict[str, str]:
    waits = (f"%{scope.instructions[number].name}" for number in message.control_predecessor_ids)
    return {"control-predecessors": f"{{{', '.join(waits)}}}"}


def _replica_groups(message: Any, _scope: Scope) -> dict[str, str]:
    return {"replica_groups": replica_groups_text(message)}


def _sharding(message: Any, _scope: Scope) -> dict[str, str]:
    return {"sharding": sharding_text(message.sharding, metadata_text)}


def _comparison(message: Any, scope: Scope) -> dict[str, str]:
    """``order=`` (``type=`` before jaxlib 0.11) where it is not what the operands imply."""
    if not message.operand_ids:
        return {}
    dtype = scope.instructions[message.operand_ids[0]].shape.dtype
    inexact = is_floating(dtype) or is_complex(dtype)
    if message.comparison_order:
        implied = "PARTIAL" if inexact else "TOTAL"
        given = message.comparison_order
        return {} if given == implied else {"order": given}
    implied = "FLOAT" if inexact else "SIGNED" if dtype.startswith("s") else "UNSIGNED"
    given = message.comparison_type
    return {} if given in ("", implied) else {"type": given}


def _domain(message: Any, _scope: Scope) -> dict[str, str]:
    # The message names the two from the domain's point of view, the text from its user's.
    entry = sharding_text(message.domain_exit_sharding, metadata_text)
    leave = sharding_text(message.domain_entry_sharding, metadata_text)
    return {"domain": f'{{kind="sharding", entry={entry}, exit={leave}}}'}


def _operand_layouts(message: Any, scope: Scope) -> dict[str, str]:
    shapes = (str(scope.shapes.read(shape)) for shape in message.operand_shapes_with_layout)
    return {"operand_layout_constraints": f"{{{', '.join(shapes)}}}"}


def _padding_type(message: Any, _scope: Scope) -> dict[str, str]:
    if message.opcode != "custom-call":  # elsewhere the window says it all
        return {}
    return {"padding_type": enum_name("PaddingType", message.padding_type)}


def _constrain_layout(message: Any, _scope: Scope) -> dict[str, str]:
    # On a custom call the field only says that operand_layout_constraints follow.
    return {} if message.opcode == "custom-call" else {"constrain_layout": "true"}


def _outfeed_shape(message: Any, scope: Scope) -> dict[str, str]:
    return {"outfeed_shape": str(scope.shapes.read(message.outfeed_shape))}


def _ragged_dot(message: Any, _scope: Scope) -> dict[str, str]:
    numbers = message.ragged_dot_dimension_numbers
    return dot_texts(numbers.dot_dimension_numbers) | {
        "lhs_ragged_dims": integers_text(numbers.lhs_ragged_dimensions),
        "rhs_group_dims": integers_text(numbers.rhs_group_dimensions),
    }


def _execution_thread(message: Any, _scope: Scope) -> dict[str, str]:
    thread = message.async_execution_thread
    return {} if thread == "main" else {"async_execution_thread": quoted(thread)}


def _metadata(message: Any, _scope: Scope) -> dict[str, str]:
    metadata = message.metadata
    if not any(getattr(metadata, field) for field in _METADATA_WORTH_PRINTING):
        return {}
    return {"metadata": f"{{{metadata_text(metadata)}}}"}


_METADATA_WORTH_PRINTING = (
    "op_name",
    "op_type",
    "source_file",
    "scheduling_name",
    "stack_frame_id",
)
"""XLA prints no metadata that has none of these, whatever else is set."""


def _backend_config(message: Any, scope: Scope) -> dict[str, str]:
    config = message.backend_config or scope.payload(message.backend_config_payload)
    return {"backend_config": dictionary_or_string(config)} if config else {}


_RELATED: dict[str, _Related] = {
    "dimensions": _dimensions,
    "metadata": _metadata,
    "ragged_dot_dimension_numbers": _ragged_dot,
    "control_predecessor_ids": _control_predecessors,
    "called_computation_ids": _called,
    "sharding": _sharding,
    "backend_config": _backend_config,
    "backend_config_payload": _backend_config,
    "replica_groups": _replica_groups,
    "collective_device_list": _replica_groups,
    "iota_collective_device_list": _replica_groups,
    "mesh_axes_replica_group_list": _replica_groups,
    "comparison_order": _comparison,
    "comparison_type": _comparison,
    "domain_entry_sharding": _domain,
    "operand_shapes_with_layout": _operand_layouts,
    "constrain_layout": _constrain_layout,
    "padding_type": _padding_type,
    "outfeed_shape": _outfeed_shape,
    "async_execution_thread": _execution_thread,
}
"""Fields whose text depends on the rest of the instruction or of the module."""
