"""Results that got memory of their own where an argument's could have been given."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hloscope.ir import Module, Shape
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.aliasing import Aliasing, LeafAliasing
from hloscope.passes.entry_slots import parameter_slots, result_shapes
from hloscope.passes.partner_outputs import PartnerOutputs
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.pytree_paths import keys_of

__all__ = ["MissedDonation", "MissedDonations", "find_missed_donations"]

Fit = tuple[str, tuple[int, ...], tuple[int, ...], str]


@dataclass(frozen=True, slots=True)
class MissedDonation:
    """One result and an argument whose buffer it could have had.

    Attributes:
        leaf: The argument; it was not donated.
        output: The result.
        bytes: Bytes of either, on one device.
        updated: Whether the paths say that the result is the argument's new
            value; otherwise they only have shape, dtype and layout in common.
    """

    leaf: LeafAliasing
    output: OutputLeaf
    bytes: int
    updated: bool


@dataclass(frozen=True, slots=True)
class MissedDonations:
    """All of them, most bytes first.

    Attributes:
        missed: One for each result; no argument is given away twice.
        entry_bytes: Bytes of all arguments and of the results that have memory
            of their own, on one device.
    """

    missed: tuple[MissedDonation, ...]
    entry_bytes: int


@analysis
def find_missed_donations(
    module: Module, signature: Signature, aliasing: Aliasing
) -> MissedDonations:
    """Pair results that live in no argument's buffer with arguments that were not donated.

    The two must agree in dtype, in dimensions over all devices and on one, in
    layout and memory space, as XLA and JAX ask of an alias. Frozen arguments
    and random keys are left alone: they are passed again. So is a result that
    is the new value of a donated leaf, which has a reason of its own.
    """
    slots = parameter_slots(module)
    shapes = list(result_shapes(module).items())
    aliased = {alias.output_index for alias in module.input_output_alias}
    outputs = {o.index: o for o in signature.outputs if o.index is not None}
    # Where a donated leaf's own result came back otherwise, that is what to mend.
    owed = {
        leaf.partner.index
        for leaf in aliasing.leaves
        if leaf.reason is not None and leaf.leaf.donated and leaf.partner is not None
    }
    free = {
        number: shape
        for number, (index, shape) in enumerate(shapes)
        if index not in aliased and number in outputs and shape.bytes and number not in owed
    }
    entry_bytes = sum(slot.shape.bytes for slot in slots) + sum(s.bytes for s in free.values())
    offered = [leaf for leaf in aliasing.leaves if _could_be_given(leaf)]
    partners = PartnerOutputs(
        signature,
        {
            leaf.leaf.path: leaf.output.index
            for leaf in aliasing.leaves
            if leaf.output is not None and leaf.output.index is not None
        },
    )
    found: list[MissedDonation] = []
    spare: dict[Fit, list[LeafAliasing]] = defaultdict(list)
    for leaf in offered:
        shape = slots[leaf.leaf.parameter or 0].shape
        partner = partners.by_path(leaf.leaf)
        number = partner.index if partner is not None else None
        if (
            partner is not None
            and number in free
            and len(keys_of(leaf.leaf.path)) > 1  # a lone array has no path to agree in
            and _fit(shape, leaf.leaf) == _fit(free[number], partner)
        ):
            found.append(MissedDonation(leaf, partner, shape.bytes, updated=True))
            del free[number]
        else:
            spare[_fit(shape, leaf.leaf)].append(leaf)
    for number, shape in free.items():
        candidates = spare.get(_fit(shape, outputs[number]))
        if candidates:
            leaf = candidates.pop(0)
            found.append(MissedDonation(leaf, outputs[number], shape.bytes, updated=False))
    return MissedDonations(
        tuple(sorted(found, key=lambda m: (-m.bytes, m.leaf.leaf.path))), entry_bytes
    )


def _could_be_given(leaf: LeafAliasing) -> bool:
    return (
        leaf.leaf.parameter is not None
        and not leaf.aliased
        and not leaf.donor
        and not leaf.leaf.donated
        and leaf.leaf.role not in (Role.FROZEN, Role.RNG)
        and leaf.bytes > 0
    )


def _fit(shape: Shape, leaf: InputLeaf | OutputLeaf) -> Fit:
    """What must be equal for two arrays to share a buffer."""
    return shape.dtype, shape.dimensions, leaf.dimensions, str(shape.layout or "")
