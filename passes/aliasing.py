"""What became of each argument's buffer, and why a state leaf's was not reused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.ir.dtypes import BITS
from hloscope.ir.header import Alias
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.entry_slots import Slot, parameter_slots, result_shapes
from hloscope.passes.partner_outputs import PartnerOutputs
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.checks import DonationCount

__all__ = ["Aliasing", "LeafAliasing", "Reason", "count_donation", "find_aliasing"]

_SPEC = re.compile(r"(?:PartitionSpec|P)\((.*)\)", re.DOTALL)
_UNSHARDED_END = re.compile(r"(?:(?:^|,\s*)None)*,?\s*$")


class Reason(StrEnum):
    """Why a leaf's buffer is not taken over by a result."""

    NOT_DONATED = "not donated"
    DROPPED = "dropped"
    FORWARDED = "forwarded unchanged"
    NO_MATCHING_OUTPUT = "no matching output"
    DTYPE_DIFFERS = "dtype differs"
    SHAPE_DIFFERS = "shape differs"
    SHARDING_DIFFERS = "sharding differs"
    TAKEN = "another leaf took the output"
    UNUSED = "XLA used the donated buffer for no result"


@dataclass(frozen=True, slots=True)
class LeafAliasing:
    """One leaf of the arguments and what became of its buffer.

    Attributes:
        leaf: The leaf; ``leaf.donated`` says whether donation was asked for.
        bytes: Size of the buffer, on one device where the module keeps it.
        alias: The module's entry that gives the buffer to a result, if any.
        output: The result that took it, where it is known by path.
        donor: Whether the module lists it as free for anything.
        reason: Why no result took it; ``None`` for an aliased leaf, and for
            one that is neither state nor donated.
        detail: The reason in words, with the names and shapes it rests on.
        partner: The result that the leaf becomes, as far as can be told.
    """

    leaf: InputLeaf
    bytes: int
    alias: Alias | None = None
    output: OutputLeaf | None = None
    donor: bool = False
    reason: Reason | None = None
    detail: str = ""
    partner: OutputLeaf | None = None

    @property
    def aliased(self) -> bool:
        """Whether a result takes over the buffer."""
        return self.alias is not None

    @property
    def dropped(self) -> bool:
        """Whether jit removed the leaf from the program."""
        return self.leaf.parameter is None


@dataclass(frozen=True, slots=True)
class Aliasing:
    """All leaves of the arguments, in the signature's order.

    Attributes:
        leaves: One for each leaf.
        basis: ``captured`` or ``inferred``, as for the signature.
    """

    leaves: tuple[LeafAliasing, ...]
    basis: str

    @property
    def state(self) -> tuple[LeafAliasing, ...]:
        """The leaves of the training state."""
        return tuple(leaf for leaf in self.leaves if leaf.leaf.role is Role.STATE)

    @property
    def not_aliased(self) -> tuple[LeafAliasing, ...]:
        """State leaves whose buffer no result takes over, forwarded ones left out."""
        return tuple(
            leaf for leaf in self.state if not leaf.aliased and leaf.reason is not Reason.FORWARDED
        )


@analysis
def find_aliasing(module: Module, signature: Signature) -> Aliasing:
    """Join the signature with the module's alias and donor tables.

    Raises:
        Unavailable: The signature's parameter numbers do not fit the module.
    """
    slots = parameter_slots(module)
    kept = [leaf.parameter for leaf in signature.inputs if leaf.parameter is not None]
    if any(number >= len(slots) for number in kept) or (slots and not kept and signature.inputs):
        raise Unavailable("which argument is which parameter of the compiled program is not known")
    return _Join(module, signature, slots).aliasing()


@analysis
def count_donation(aliasing: Aliasing) -> DonationCount:
    """How many state leaves there are, how many are aliased, and their bytes."""
    state = aliasing.state
    return DonationCount(
        leaves=len(state),
        aliased=sum(leaf.aliased for leaf in state),
        bytes=sum(leaf.bytes for leaf in state),
    )


class _Join:
    """Signature and module side by side."""

    def __init__(self, module: Module, signature: Signature, slots: tuple[Slot, ...]) -> None:
        self.signature = signature
        self.slots = slots
        self.shapes = list(result_shapes(module).values())
        positions = {index: n for n, index in enumerate(result_shapes(module))}
        self.outputs = {o.index: o for o in signature.outputs if o.index is not None}
        self.aliases = {(a.parameter, a.parameter_index): a for a in module.input_output_alias}
        self.donors = {(d.parameter, d.parameter_index) for d in module.buffer_donors}
        leaves = signature.by_parameter()
        slot_of = {slot.key: number for number, slot in enumerate(slots)}
        # Result to the leaf whose buffer it lives in.
        self.taken: dict[int, InputLeaf] = {
            positions[alias.output_index]: leaves[slot_of[key]]
            for key, alias in self.aliases.items()
            if alias.output_index in positions and slot_of.get(key) in leaves
        }
        self.positions: Mapping[tuple[int, ...], int] = positions
        self.partners = PartnerOutputs(
            signature, {leaf.path: index for index, leaf in self.taken.items()}
        )

    def aliasing(self) -> Aliasing:
        leaves = tuple(self.one(leaf) for leaf in self.signature.inputs)
        return Aliasing(leaves, self.signature.basis)

    def one(self, leaf: InputLeaf) -> LeafAliasing:
        if leaf.parameter is None:
            partner = self.partners.by_path(leaf)
            reason, detail = self.why_dropped(partner)
            return LeafAliasing(
                leaf, _global_bytes(leaf), reason=reason, detail=detail, partner=partner
            )
        slot = self.slots[leaf.parameter]
        alias = self.aliases.get(slot.key)
        donor = slot.key in self.donors
        size = slot.shape.bytes
        if alias is not None:
            position = self.positions.get(alias.output_index)
            output = self.outputs.get(position) if position is not None else None
            return LeafAliasing(leaf, size, alias, output, donor)
        if leaf.role is not Role.STATE and not leaf.donated:
            return LeafAliasing(leaf, size, donor=donor)
        partner = self.partners.by_path(leaf)
        reason, detail = self.why_not(leaf, slot, partner)
        return LeafAliasing(leaf, size, donor=donor, reason=reason, detail=detail, partner=partner)

    def why_dropped(self, partner: OutputLeaf | None) -> tuple[Reason, str]:
        if partner is not None and partner.index is None:
            return Reason.FORWARDED, f"JAX hands it on as the result {partner.path}"
        return Reason.DROPPED, "jit removed it: the step never reads it"

    def why_not(
        self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf | None
    ) -> tuple[Reason, str]:
        if partner is not None:
            if partner.index is None:
                return Reason.FORWARDED, f"JAX hands it on as the result {partner.path}"
            if leaf.donated is False:
                return Reason.NOT_DONATED, "the step was not asked to donate it"
            return self.against_partner(leaf, slot, partner)
        if leaf.donated is False:
            return Reason.NOT_DONATED, "the step was not asked to donate it"
        return self.against_any(leaf, slot)

    def against_partner(
        self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf
    ) -> tuple[Reason, str]:
        """Why the result that the leaf becomes does not live in its buffer."""
        where = partner.path or "the result"
        if partner.dtype != leaf.dtype:
            return Reason.DTYPE_DIFFERS, f"goes in as {leaf.dtype}, {where} is {partner.dtype}"
        if partner.dimensions != leaf.dimensions:
            return (
                Reason.SHAPE_DIFFERS,
                f"goes in as {_sizes(leaf.dimensions)}, {where} is {_sizes(partner.dimensions)}",
            )
        if self.differs_in_sharding(leaf, slot, partner):
            return (
                Reason.SHARDING_DIFFERS,
                f"goes in as {leaf.sharding or _sizes(slot.shape.dimensions)}, {where} is "
                f"{partner.sharding or _sizes(self.local(partner))}",
            )
        other = self.taken.get(partner.index) if partner.index is not None else None
        if other is not None:
            return Reason.TAKEN, f"{where} lives in the buffer of {other.path}"
        return self.unexplained(leaf, f"{where} has its shape and dtype")

    def differs_in_sharding(self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf) -> bool:
        if self.local(partner) not in ((), slot.shape.dimensions):
            return True
        inside, outside = _spec(leaf.sharding), _spec(partner.sharding)
        return inside is not None and outside is not None and inside != outside

    def local(self, output: OutputLeaf) -> tuple[int, ...]:
        """Dimensions of a result on one device."""
        if output.index is None or output.index >= len(self.shapes):
            return ()
        return self.shapes[output.index].dimensions

    def against_any(self, leaf: InputLeaf, slot: Slot) -> tuple[Reason, str]:
        """Why no result of the leaf's shape and dtype lives in its buffer."""
        text = f"{slot.shape.dtype}{_sizes(slot.shape.dimensions)}"
        fitting = [
            number
            for number, shape in enumerate(self.shapes)
            if (shape.dtype, shape.dimensions) == (slot.shape.dtype, slot.shape.dimensions)
        ]
        if not fitting:
            return Reason.NO_MATCHING_OUTPUT, f"no result is {text}"
        free = [number for number in fitting if number not in self.taken]
        if not free:
            others = sorted({self.taken[number].path for number in fitting})
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            return Reason.TAKEN, f"every result that is {text} lives in another buffer: {shown}"
        output = self.outputs.get(free[0])
        return self.unexplained(leaf, f"{output.path if output else 'a result'} is {text}")

    def unexplained(self, leaf: InputLeaf, fact: str) -> tuple[Reason, str]:
        if leaf.donated:
            return Reason.UNUSED, f"it was donated and {fact}, but XLA did not join them"
        return (
            Reason.NOT_DONATED,
            f"{fact} and lives in no argument's buffer, so this one was not offered",
        )


def _sizes(dimensions: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dimensions))}]"


def _spec(sharding: str | None) -> str | None:
    """A partition spec without the dimensions at its end that it leaves alone.

    Shardings of other kinds have no text that two of them could be compared by.
    """
    match = _SPEC.fullmatch(sharding or "")
    return _UNSHARDED_END.sub("", match[1]) if match else None


def _global_bytes(leaf: InputLeaf) -> int:
    """Bytes of a leaf that the module does not hold, over all devices."""
    elements = 1
    for size in leaf.dimensions:
        elements *= size
    return elements * -(-BITS.get(leaf.dtype, 0) // 8)
