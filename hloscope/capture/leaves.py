"""The signature of a step, leaf by leaf. Runs in the worker."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from hloscope.capture import jax_private
from hloscope.capture.abstraction import hlo_dtype
from hloscope.capture.step import Step
from hloscope.errors import UsageError
from hloscope.ir.argument_roles import find_updated, guess_roles
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature

__all__ = ["check_roles", "mesh_axes", "read_signature", "with_shardings"]


def check_roles(step: Step) -> None:
    """Make sure that the step's roles name arguments that it has.

    Raises:
        UsageError: A role is given to a position or a name that is not there.
    """
    names = _parameter_names(step.fn, len(step.args))
    known = {*range(len(step.args)), *names, *step.kwargs}
    for key in step.roles:
        if key not in known:
            raise UsageError(
                f"a role is given to the argument {key!r}, which the step does not have",
                place=step.name or getattr(step.fn, "__name__", "step"),
                hint=f"Its arguments are: {', '.join([*names, *step.kwargs]) or 'none'}.",
            )


def read_signature(step: Step, lowered: Any) -> Signature:
    """The leaves of the arguments and results, and where each is in the entry computation.

    Args:
        step: What was lowered.
        lowered: JAX's own ``Lowered``.
    """
    infos = jax.tree_util.tree_flatten_with_path(lowered.args_info)[0]
    numbers = jax_private.entry_numbers(lowered, len(infos))
    names = _parameter_names(step.fn, len(step.args))
    static = {n % len(step.args) for n in step.static} if step.args else set()
    dynamic = [(n, name) for n, name in enumerate(names) if n not in static]
    owners = [_owner(path, dynamic) for path, _ in infos]
    paths = jax_private.argument_names(lowered, len(infos)) or [
        name + jax.tree_util.keystr(path[2:])
        for (_, name), (path, _) in zip(owners, infos, strict=True)
    ]
    in_modules = _names_in_modules(step, owners, infos, paths)
    paths = _named_by_module(paths, owners, in_modules)
    results = jax.tree_util.tree_flatten_with_path(lowered.out_info)[0]
    given = [_array_type(shape)[1] for _, shape in results]
    roles = _roles(step, owners, [info for _, info in infos], given)
    inputs = []
    for index, (_, info) in enumerate(infos):
        dtype, dimensions = _array_type(info)
        inputs.append(
            InputLeaf(
                path=paths[index],
                role=roles[owners[index]],
                dtype=dtype,
                dimensions=dimensions,
                donated=bool(info.donated),
                parameter=numbers.parameters[index] if numbers is not None else None,
            )
        )
    outputs = []
    where = [jax.tree_util.keystr(path) for path, _ in results]
    where = _results_named_by_module(where, in_modules)
    for index, (_, shape) in enumerate(results):
        dtype, dimensions = _array_type(shape)
        outputs.append(
            OutputLeaf(
                path=where[index],
                dtype=dtype,
                dimensions=dimensions,
                index=numbers.first_result + index if numbers is not None else None,
            )
        )
    return Signature(inputs=tuple(inputs), outputs=tuple(outputs))


def with_shardings(signature: Signature, compiled: Any) -> Signature:
    """Add to each leaf how the compiled program lays it over the devices, and in which memory.

    Args:
        signature: What :func:`read_signature` gave.
        compiled: JAX's own ``Compiled``.
    """
    inputs = _shardings(compiled, "input_shardings")
    kept = [index for index, leaf in enumerate(signature.inputs) if leaf.parameter is not None]
    # jit has no sharding for the arguments that it dropped.
    owners = kept if len(inputs) == len(kept) else list(range(len(signature.inputs)))
    laid = dict(zip(owners, inputs, strict=True)) if len(inputs) == len(owners) else {}
    outputs = _shardings(compiled, "output_shardings")
    if len(outputs) != len(signature.outputs):
        outputs = [None] * len(signature.outputs)
    return dataclasses.replace(
        signature,
        inputs=tuple(
            dataclasses.replace(
                leaf,
                sharding=_describe(laid.get(index)),
                memory_kind=getattr(laid.get(index), "memory_kind", None),
            )
            for index, leaf in enumerate(signature.inputs)
        ),
        outputs=tuple(
            dataclasses.replace(
                leaf,
                sharding=_describe(sharding),
                memory_kind=getattr(sharding, "memory_kind", None),
            )
            for leaf, sharding in zip(signature.outputs, outputs, strict=True)
        ),
    )


def _array_type(leaf: Any) -> tuple[str, tuple[int, ...]]:
    """Dtype and dimensions of the array that XLA sees; a random key is one of integers."""
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return hlo_dtype(leaf.dtype), tuple(int(d) for d in leaf.shape)


def _names_in_modules(
    step: Step,
    owners: Sequence[tuple[int | None, str]],
    infos: Sequence[tuple[Any, Any]],
    paths: Sequence[str],
) -> dict[tuple[int | None, str], list[str]]:
    """What ``nnx.jit`` gives only numbers to: paths of leaves within a module, by argument.

    It hands ``jax.jit`` a flat list of states (``model.states[0][3]``) in the
    order in which the module itself flattens. Where counts, shapes and dtypes
    agree, the module's own path says more (``.layers[0].kernel``).
    """
    names = {}
    for owner in dict.fromkeys(owners):
        position, _ = owner
        mine = [index for index, other in enumerate(owners) if other == owner]
        if position is None or not all(".states[" in paths[index] for index in mine):
            continue
        leaves = jax.tree_util.tree_flatten_with_path(step.args[position])[0]
        if len(leaves) == len(mine) and all(
            getattr(leaf, "shape", None) == infos[index][1].shape
            and getattr(leaf, "dtype", None) == infos[index][1].dtype
            for index, (_, leaf) in zip(mine, leaves, strict=True)
        ):
            names[owner] = [
                jax.tree_util.keystr(path).removesuffix(".value").removesuffix("[...]")
                for path, _ in leaves
            ]
    return names


def _named_by_module(
    paths: list[str],
    owners: Sequence[tuple[int | None, str]],
    names: Mapping[tuple[int | None, str], list[str]],
) -> list[str]:
    """Paths of arguments, with the names of their modules in place of numbers."""
    named = list(paths)
    for owner, own in names.items():
        mine = [index for index, other in enumerate(owners) if other == owner]
        for index, name in zip(mine, own, strict=True):
            named[index] = owner[1] + name
    return named


def _results_named_by_module(
    paths: list[str], names: Mapping[tuple[int | None, str], list[str]]
) -> list[str]:
    """The same for results: ``nnx.jit`` returns the state of each argument ``k`` at ``[0][k]``."""
    named = list(paths)
    for (position, _), own in names.items():
        head = f"[0][{position}]"
        mine = [index for index, path in enumerate(paths) if path.startswith(f"{head}.states[")]
        if len(mine) == len(own):
            for index, name in zip(mine, own, strict=True):
                named[index] = head + name
    return named


def _is_key(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _owner(path: Sequence[Any], dynamic: Sequence[tuple[int, str]]) -> tuple[int | None, str]:
    """Position and name of the argument that holds the leaf at ``path``."""
    if path[0].idx == 0:
        position: int = path[1].idx
        return dynamic[position]
    return None, str(path[1].key)


def _roles(
    step: Step,
    owners: Sequence[tuple[int | None, str]],
    infos: Sequence[Any],
    results: Sequence[tuple[int, ...]],
) -> dict[tuple[int | None, str], Role]:
    held = {
        owner: [info for info, other in zip(infos, owners, strict=True) if other == owner]
        for owner in dict.fromkeys(owners)
    }
    donated = {
        name: [_array_type(info)[1] for info in mine]
        for (_, name), mine in held.items()
        if any(info.donated for info in mine)
    }
    guessed = guess_roles((name for _, name in held), find_updated(donated, results))
    roles: dict[tuple[int | None, str], Role] = {}
    for owner, mine in held.items():
        position, name = owner
        given = step.roles.get(name)
        if given is None and position is not None:
            given = step.roles.get(position)
        is_key = all(_is_key(info) for info in mine)
        roles[owner] = given or (Role.RNG if is_key else guessed[name])
    return roles


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """Names of the first ``count`` positional parameters; ``args[k]`` behind a ``*args``."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][
        :count
    ]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    first = len(names)
    return names + [f"{rest}[{n - first}]" for n in range(first, count)]


def mesh_axes(compiled: Any) -> dict[str, int]:
    """Axes and sizes of the mesh that the arguments lie on, or else the results.

    Empty where they name no mesh of several devices, or more than one.
    """
    for which in ("input_shardings", "output_shardings"):
        meshes = {
            tuple(sharding.mesh.shape.items())
            for sharding in _shardings(compiled, which)
            if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1
        }
        if len(meshes) == 1:
            return dict(meshes.pop())
    return {}


def _shardings(compiled: Any, which: str) -> list[Any]:
    try:
        return jax.tree.leaves(getattr(compiled, which))
    except (AttributeError, NotImplementedError, ValueError, jax.errors.JaxRuntimeError):
        return []


def _describe(sharding: Any) -> str | None:
    if sharding is None or len(sharding.device_set) == 1:
        return None
    if isinstance(sharding, NamedSharding):
        return str(sharding.spec)
    return type(sharding).__name__
