"""From a case to the function that is compiled, and to a step for any target."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from hloscope.capture.step import Step
from hloscope.chips import ChipKind
from hloscope.kernels.case import Case, Direction

__all__ = ["arguments_of", "donation_of", "kernel_step", "program_of"]

Program = Callable[..., Any]


def program_of(case: Case, *, interpret: bool) -> Program:
    """The function to compile.

    It takes the operands by name and gives the results by name; with gradients
    it also takes a cotangent of the first result, and gives two dictionaries.
    Operands that are donated stand in a dictionary of their own, after the others.
    Products of float32 operands are done in float32, which is not the default
    everywhere: what is called float32 should be.

    Args:
        case: What to compute.
        interpret: Whether Pallas kernels run interpreted.
    """
    forward = case.family.programs().implement(case, interpret=interpret)
    names = [one.name for one in case.family.oracle().operands(case) if one.differentiable]
    first = case.family.outputs[0]

    def run(arrays: Mapping[str, jax.Array]) -> Any:
        with _settings(case, interpret=interpret):
            return forward(arrays)

    def run_both(arrays: Mapping[str, jax.Array], cotangent: jax.Array) -> Any:
        fixed = {name: array for name, array in arrays.items() if name not in names}

        def of(varied: Mapping[str, jax.Array]) -> Any:
            return forward({**fixed, **varied})[first]

        with _settings(case, interpret=interpret):
            output, pull = jax.vjp(of, {name: arrays[name] for name in names})
            (gradients,) = pull(cotangent)
        return {first: output}, gradients

    def run_in_place(arrays: Mapping[str, jax.Array], state: Mapping[str, jax.Array]) -> Any:
        return run({**arrays, **state})

    program: Program = run if case.direction is Direction.FORWARD else run_both
    if _donated(case):
        program = run_in_place
    program.__name__ = f"{case.family.name}_{case.implementation.name}_{case.direction.value}"
    return program


def arguments_of(case: Case, operands: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Operands as the program takes them: those that are donated apart, if there are any."""
    given = _donated(case)
    if not given:
        return (dict(operands),)
    kept = {name: one for name, one in operands.items() if name not in given}
    return kept, {name: operands[name] for name in given}


def donation_of(case: Case) -> tuple[int, ...]:
    """Numbers of the program's arguments that are donated."""
    return (1,) if _donated(case) else ()


def _donated(case: Case) -> tuple[str, ...]:
    """Operands that the results of their names replace; gradients want them all kept."""
    if case.direction is Direction.BACKWARD:
        return ()
    return tuple(one.name for one in case.family.oracle().operands(case) if one.donated)


def kernel_step(case: Case, device: jax.Device | None = None) -> Step:
    """The case as a step, to be compiled for a target; allocates no array.

    Args:
        case: What to compute.
        device: What it is compiled for, which need not be there.
    """
    program = _for_device(case, device, program_of(case, interpret=False))
    operands = {
        one.name: jax.ShapeDtypeStruct(one.shape, jnp.dtype(one.dtype_in(case.dtype)))
        for one in case.family.oracle().operands(case)
    }
    arguments: tuple[Any, ...] = arguments_of(case, operands)
    if case.direction is Direction.BACKWARD:
        forward = case.family.programs().implement(case, interpret=True)
        forward = _for_device(case, device, forward)
        output = jax.eval_shape(forward, operands)[case.family.outputs[0]]
        arguments = (operands, jax.ShapeDtypeStruct(output.shape, output.dtype))
    return Step(program, arguments, donate=donation_of(case), name=program.__name__)


def _for_device(case: Case, device: jax.Device | None, program: Program) -> Program:
    """The program with what its kernel asks about a device that need not be attached."""
    if case.implementation.kinds == {ChipKind.GPU}:
        program = _knowing(device, program)
    if case.implementation.package == "tokamax" and device is not None:
        # Here and not above: it is there only where tokamax's kernels are asked for.
        from hloscope.kernels.tokamax_kernels import compiled_for

        program = compiled_for(device, program)
    return program


def _knowing(device: jax.Device | None, program: Program) -> Program:
    """Tell Pallas' GPU kernels the card: JAX 0.12 asks for it, and looks among those attached."""
    if device is None or device.platform not in ("cuda", "gpu"):
        return program
    card = AbstractDevice(
        device_kind=device.device_kind,
        num_cores=getattr(device, "core_count", None),
        platform="gpu",
    )
    mesh = AbstractMesh((1,), ("device",), (AxisType.Explicit,), abstract_device=card)

    @functools.wraps(program)
    def told(*arguments: Any) -> Any:
        with use_abstract_mesh(mesh):
            return program(*arguments)

    return told


@contextlib.contextmanager
def _settings(case: Case, *, interpret: bool) -> Any:
    with contextlib.ExitStack() as stack:
        if case.dtype == "float32":
            stack.enter_context(jax.default_matmul_precision("highest"))
        if interpret and case.implementation.kinds == {ChipKind.TPU}:
            stack.enter_context(pltpu.force_tpu_interpret_mode())
        yield
