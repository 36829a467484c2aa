"""The signature of a bare module, from the names and aliases that it keeps."""

from __future__ import annotations

import re

from hloscope.ir import Module
from hloscope.ir.argument_roles import find_updated, guess_roles
from hloscope.ir.signature import InputLeaf, OutputLeaf, Signature
from hloscope.passes.entry_slots import Slot, parameter_slots, result_shapes
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.pytree_paths import keys_of

__all__ = ["infer_signature", "is_unnamed"]

_UNNAMED = "parameter "

# JAX names an entry parameter by its pytree path: state['params']['w'], x, batch[0].
_PATH = re.compile(r"[A-Za-z_]\w*(?:[.\[].*)?", re.DOTALL)


@analysis
def infer_signature(module: Module) -> Signature:
    """Read leaves from the entry computation's parameters and results.

    The path is the parameter's ``op_name``, which JAX has written since jaxlib
    0.5; without one the leaf is called ``parameter 3``. What is aliased or
    listed as a donor was donated. An argument with an aliased leaf is state; so
    is one that is named like a training state, and one with a donor as large as
    a result that lives in no argument's buffer. Of other leaves nothing tells
    whether they were donated. Arguments that jit dropped left no trace. In a
    partitioned module sizes are those of one partition.
    """
    slots = parameter_slots(module)
    aliased = {(alias.parameter, alias.parameter_index) for alias in module.input_output_alias}
    donors = {(donor.parameter, donor.parameter_index) for donor in module.buffer_donors}
    paths = [_path(number, slot) for number, slot in enumerate(slots)]
    given_up = aliased | donors
    updated = {root for slot, (_, root) in zip(slots, paths, strict=True) if slot.key in aliased}
    offered: dict[str, list[tuple[int, ...]]] = {}
    for slot, (_, root) in zip(slots, paths, strict=True):
        if slot.key in donors and root not in updated:
            offered.setdefault(root, []).append(slot.shape.dimensions)
    taken = {alias.output_index for alias in module.input_output_alias}
    results = result_shapes(module)
    left = (shape.dimensions for index, shape in results.items() if index not in taken)
    updated |= find_updated(offered, left)
    roles = guess_roles((root for _, root in paths), updated)
    inputs = tuple(
        InputLeaf(
            path=path,
            role=roles[root],
            dtype=slot.shape.dtype,
            dimensions=slot.shape.dimensions,
            donated=True if slot.key in given_up else None,
            parameter=number,
            sharding=slot.parameter.sharding if not slot.index else None,
        )
        for number, (slot, (path, root)) in enumerate(zip(slots, paths, strict=True))
    )
    outputs = tuple(
        OutputLeaf(f"result {number}", shape.dtype, shape.dimensions, number)
        for number, shape in enumerate(results.values())
    )
    return Signature(inputs, outputs, basis="inferred")


def is_unnamed(path: str) -> bool:
    """Whether a leaf is called by its number because the module names no path for it."""
    return path.startswith(_UNNAMED)


def _path(number: int, slot: Slot) -> tuple[str, str]:
    """A leaf's path and its argument; an unnamed one is an argument of its own."""
    name = slot.parameter.op_name
    if slot.index or not _PATH.fullmatch(name):
        name = f"{_UNNAMED}{number}"
        return name, name
    return name, keys_of(name)[0]
