"""Trace, lower, compile and read one step. Runs in the worker."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh

from hloscope.capture import jax_private
from hloscope.capture.abstraction import abstract_arguments
from hloscope.capture.artifact import LiteralFacts
from hloscope.capture.closed_over import find_closed_over
from hloscope.capture.jaxpr_flops import count_jaxpr
from hloscope.capture.leaves import check_roles
from hloscope.capture.literals import literal_facts
from hloscope.capture.named_points import find_named_points
from hloscope.capture.promotions import find_promotions
from hloscope.capture.request import OptionValue
from hloscope.capture.step import Step
from hloscope.errors import CaptureError, UsageError
from hloscope.ir.closed_over import ClosedOver
from hloscope.ir.jaxpr_count import JaxprCount
from hloscope.ir.jaxpr_promotions import JaxprPromotions
from hloscope.ir.named_points import NamedPoints

__all__ = [
    "TRITON_PRODUCTS",
    "Compiled",
    "Lowered",
    "compile_step",
    "lower_step",
    "program_digest",
    "read_program",
    "standard_error_in",
]

TRITON_PRODUCTS = "xla_gpu_enable_triton_gemm"

# On a card the autotuner drops the tilings that do not fit a fusion and falls back
# to cuBLAS. Without one XLA takes its default tiling unseen, and fails here where
# that does not fit, as in a product of 16 x 77 transposed rows.
_NO_TILES = "Couldn't find output tile sizes"

T = TypeVar("T")

Phase = Callable[[str], AbstractContextManager[None]]
"""Makes a context that reports when the phase of that name begins and ends."""


@dataclass(frozen=True)
class Lowered:
    """A step on its way to the compiler.

    Attributes:
        plain: JAX's own ``Lowered``; what flax wraps around it is taken off.
        timings: Seconds of ``trace`` (where it runs apart) and ``lower``.
        warnings: What JAX warned of on the way.
        jaxpr: FLOPs of the traced step, or ``None``.
        jaxpr_note: Why there are none.
        closed_over: The arrays that the step closes over, or ``None``.
        closed_over_note: Why they are not known.
        promotions: Where type promotion widens values, or ``None``.
        promotions_note: Why that is not known.
        named_points: The values that the step names for remat policies, or ``None``.
        named_points_note: Why they are not known.
    """

    plain: Any
    timings: Mapping[str, float]
    warnings: tuple[str, ...]
    jaxpr: JaxprCount | None
    jaxpr_note: str | None
    closed_over: ClosedOver | None
    closed_over_note: str | None
    promotions: JaxprPromotions | None
    promotions_note: str | None
    named_points: NamedPoints | None
    named_points_note: str | None


@dataclass(frozen=True)
class Compiled:
    """What the compiler made, read into plain data.

    The attributes are those of :class:`hloscope.capture.artifact.Artifact`.
    """

    hlo_text: str
    lowered_text: str | None
    xla_cost: Mapping[str, float] | None
    xla_cost_note: str | None
    xla_memory: Mapping[str, int] | None
    xla_memory_note: str | None
    literals: tuple[LiteralFacts, ...]
    literals_note: str | None


def lower_step(
    step: Step, devices: Sequence[Any], *, mesh: Mesh | None, present: bool, phase: Phase
) -> Lowered:
    """Trace and lower ``step`` for ``devices``, without allocating its arguments.

    Raises:
        UsageError: The step's description contradicts itself.
        CaptureError: An argument lies on other devices.
    """
    check_roles(step)
    jitted = hasattr(step.fn, "lower")
    if jitted and (step.donate or step.static or step.out_shardings is not None):
        raise UsageError(
            "the step's function is jitted already, so `donate`, `static` and "
            "`out_shardings` would have no effect",
            place=step.name or getattr(step.fn, "__name__", "step"),
            hint="Give them to jax.jit, or give the plain function to Step.",
        )

    def arguments(*, place: bool = True) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return abstract_arguments(
            step.args,
            step.kwargs,
            step.static,
            devices,
            mesh=mesh,
            present=present,
            scalars=not jitted,
            place=place,
        )

    function = step.fn
    if not jitted:
        options = {} if step.out_shardings is None else {"out_shardings": step.out_shardings}
        function = jax.jit(
            step.fn, donate_argnums=step.donate, static_argnums=step.static, **options
        )
    timings: dict[str, float] = {}
    with _collected_warnings() as messages:
        if hasattr(function, "trace"):
            try:
                traced, stage = _trace_and_lower(function, *arguments(), phase, timings)
            except ValueError as error:
                if not any(said in str(error) for said in _OTHERWISE_PLACED):
                    raise
                # The function's own in_shardings say where its arguments lie.
                unplaced = arguments(place=False)
                traced, stage = _trace_and_lower(function, *unplaced, phase, timings)
            plain = jax_private.unwrapped(traced)
            jaxpr, jaxpr_note = _fact(
                "the jaxpr could not be counted", lambda: count_jaxpr(plain.jaxpr)
            )
            closed_over, closed_over_note = _fact(
                "closed-over arrays could not be read",
                lambda: find_closed_over(step.fn, plain, jax_private.unwrapped(stage)),
            )
            promotions, promotions_note = _fact(
                "the jaxpr's promotions could not be read", lambda: find_promotions(plain.jaxpr)
            )
            named_points, named_points_note = _fact(
                "named values could not be read", lambda: find_named_points(plain.jaxpr)
            )
        else:
            jaxpr, jaxpr_note = None, "the step's function cannot be traced apart from lowering"
            closed_over, closed_over_note = None, jaxpr_note
            promotions, promotions_note = None, jaxpr_note
            named_points, named_points_note = None, jaxpr_note
            with phase("lower"), _timed(timings, "lower"):
                args, kwargs = arguments()
                stage = function.lower(*args, **kwargs)  # type: ignore[attr-defined]
    return Lowered(
        plain=jax_private.unwrapped(stage),
        timings=timings,
        warnings=tuple(messages),
        jaxpr=jaxpr,
        jaxpr_note=jaxpr_note,
        closed_over=closed_over,
        closed_over_note=closed_over_note,
        promotions=promotions,
        promotions_note=promotions_note,
        named_points=named_points,
        named_points_note=named_points_note,
    )


def _trace_and_lower(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    phase: Phase,
    timings: dict[str, float],
) -> tuple[Any, Any]:
    with phase("trace"), _timed(timings, "trace"):
        traced = function.trace(*args, **kwargs)
    with phase("lower"), _timed(timings, "lower"):
        return traced, traced.lower()


_OTHERWISE_PLACED = (
    "does not match the sharding on the respective arg",
    "does not match memory kind on the respective arg",
)
"""What JAX says of an argument that lies otherwise than ``in_shardings`` ask."""


def _fact(failed: str, read: Callable[[], T]) -> tuple[T | None, str | None]:
    """What can be read beside the program, or why it cannot; it is worth no failed capture."""
    try:
        return read(), None
    except Exception as error:
        return None, f"{failed}: {type(error).__name__}: {error}"


def compile_step(
    lowered: Lowered,
    options: Mapping[str, OptionValue],
    devices: Sequence[Any],
    target: str,
    phase: Phase,
) -> tuple[Any, float, Mapping[str, OptionValue]]:
    """Compile, and make sure that it was for the target.

    Where XLA's Triton products fail for want of autotuning, compiles without them.

    Returns:
        JAX's own ``Compiled``, the seconds it took, and the options that it was
        compiled with.

    Raises:
        UsageError: XLA does not know one of the compiler options.
        CaptureError: The program went to other devices, or its compiler says that
            it needs more memory than the device has.
    """
    timings: dict[str, float] = {}
    with phase("compile"), _timed(timings, "compile"):
        try:
            compiled = _compile(lowered, options)
        except jax.errors.JaxRuntimeError as error:
            if _is_out_of_memory(str(error)):
                raise CaptureError(
                    f"the step does not fit {target}, and its compiler refuses it",
                    phase="compile",
                    detail=str(error).splitlines()[0],
                    hint="Shrink the batch, recompute activations (jax.checkpoint) or compile for "
                    "more devices. What fills the memory can be seen on a target whose compiler "
                    "does not refuse: `hloscope memory ... --target cpu --chip "
                    f"{target.partition(':')[0]}`.",
                ) from error
            if _NO_TILES not in str(error) or TRITON_PRODUCTS in options:
                raise
            options = {**options, TRITON_PRODUCTS: False}
            compiled = _compile(lowered, options)
    used = {
        device
        for sharding in jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))
        for device in sharding.device_set
    }
    if used and not used <= set(devices):
        kinds = ", ".join(sorted({device.device_kind for device in used}))
        raise CaptureError(
            f"the step was compiled for {kinds} and not for {target}",
            phase="compile",
            hint="Give it an array (or a ShapeDtypeStruct) among its arguments: these carry the "
            "devices. A step that builds its own mesh takes `devices`.",
        )
    return compiled, timings["compile"], options


@contextlib.contextmanager
def standard_error_in(file: Path) -> Iterator[None]:
    """Keep what the process, XLA included, says on standard error in a file, and say it after.

    It is written there at once, so that it outlives a compiler that takes the
    process down.
    """
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with file.open("wb") as log:
            os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            with contextlib.suppress(OSError):
                os.write(2, file.read_bytes())
    finally:
        os.close(before)


def _compile(lowered: Lowered, options: Mapping[str, OptionValue]) -> Any:
    try:
        return lowered.plain.compile(compiler_options=dict(options) or None)
    except jax.errors.JaxRuntimeError as error:
        if options and "compile option" in str(error):
            raise UsageError(
                "XLA refuses a compiler option",
                place=", ".join(f"{key}={value}" for key, value in options.items()),
                detail=str(error).splitlines()[0],
                hint="Check the option's name and value for this target.",
            ) from error
        raise


def _is_out_of_memory(message: str) -> bool:
    """Whether a compiler says that the program needs more device memory than there is."""
    return "RESOURCE_EXHAUSTED" in message and "hbm" in message.lower()


def program_digest(lowered: Lowered) -> str:
    """SHA-256 of the lowered program, constants and source locations included."""
    stream = io.BytesIO()
    lowered.plain.compiler_ir("stablehlo").operation.write_bytecode(stream)
    return hashlib.sha256(stream.getbuffer()).hexdigest()


def read_program(lowered: Lowered, compiled: Any) -> Compiled:
    """Everything that is asked of the executable before it is let go.

    Raises:
        CaptureError: The executable does not print its module.
    """
    try:
        text = compiled.as_text()
    except NotImplementedError as error:
        raise CaptureError(
            "this backend does not print the modules that it compiles",
            phase="read",
            detail=str(error),
            hint="Dump the module with --xla_dump_to and give hloscope the dump.",
        ) from error
    if not text:
        raise CaptureError(
            "the executable printed an empty module",
            phase="read",
            hint="Dump the module with --xla_dump_to and give hloscope the dump.",
        )
    module = jax_private.optimized_module(compiled)
    cost, cost_note = _cost(compiled, module)
    memory, memory_note = _memory(compiled)
    literals, literals_note = _literals(module, text)
    return Compiled(
        hlo_text=text,
        lowered_text=_lowered_text(lowered),
        xla_cost=cost,
        xla_cost_note=cost_note,
        xla_memory=memory,
        xla_memory_note=memory_note,
        literals=literals,
        literals_note=literals_note,
    )


def _lowered_text(lowered: Lowered) -> str | None:
    try:
        return jax_private.module_text(lowered.plain)
    except _NOT_PRINTED:
        return None


_NOT_PRINTED = (
    AttributeError,
    ImportError,
    NotImplementedError,
    ValueError,
    jax.errors.JaxRuntimeError,
)


def _cost(compiled: Any, module: Any) -> tuple[dict[str, float] | None, str | None]:
    try:
        own = compiled.cost_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        own = None
    if own:
        return {str(k): float(v) for k, v in own.items()}, "the executable's cost_analysis()"
    if module is None:
        return None, "the executable has no cost analysis and does not give its module"
    try:
        generic = jax_private.cost_analysis_on_cpu(module)
    except (AttributeError, ImportError, jax.errors.JaxRuntimeError) as error:
        return None, f"the executable has no cost analysis, and XLA's generic one failed: {error}"
    return (
        {str(k): float(v) for k, v in generic.items()},
        "XLA's generic HloCostAnalysis of the optimized module; the executable has none",
    )


_MEMORY_FIELDS = (
    "generated_code_size_in_bytes",
    "argument_size_in_bytes",
    "output_size_in_bytes",
    "alias_size_in_bytes",
    "temp_size_in_bytes",
    "host_generated_code_size_in_bytes",
    "host_argument_size_in_bytes",
    "host_output_size_in_bytes",
    "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
    "peak_memory_in_bytes",
)


def _memory(compiled: Any) -> tuple[dict[str, int] | None, str | None]:
    try:
        stats = compiled.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError) as error:
        return None, f"the executable has no memory analysis: {error}"
    if stats is None:
        return None, "the executable has no memory analysis"
    # Which fields there are differs between versions.
    return {
        name: int(getattr(stats, name)) for name in _MEMORY_FIELDS if hasattr(stats, name)
    }, None


def _literals(module: Any, text: str) -> tuple[tuple[LiteralFacts, ...], str | None]:
    if "constant({...})" not in text:
        return (), None
    if module is None:
        return (), "the executable does not give its module, so its constants cannot be read"
    try:
        # A protobuf cannot be larger than 2 GiB; a module with larger constants fails here.
        serialized = module.as_serialized_hlo_module_proto()
        return literal_facts(serialized, text)
    except (jax.errors.JaxRuntimeError, ValueError, IndexError, MemoryError) as error:
        return (), f"the module's constants cannot be read: {error}"


@contextlib.contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - start


@contextlib.contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield messages
        finally:
            kept = (w for w in caught if not issubclass(w.category, _NOT_OURS))
            messages.extend(dict.fromkeys(str(w.message) for w in kept))


# About Python code and not about the program.
_NOT_OURS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
