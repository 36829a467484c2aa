"""What became of each argument's buffer, and why a state leaf's was not reused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module
from hloscope.ir.dtypes import BITS
from hloscope.ir.header import Alias
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.alias_reasons import Reason, Reasons, Why
from hloscope.passes.entry_slots import Slot, parameter_slots, result_shapes
from hloscope.passes.partner_outputs import PartnerOutputs
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.checks import DonationCount
from hloscope.pipeline.findings import Basis, Quantity, Unit
from hloscope.pipeline.inputs import LoweredModule
from hloscope.pipeline.pytree_paths import keys_of

__all__ = ["Aliasing", "LeafAliasing", "Reason", "count_donation", "find_aliasing"]


@dataclass(frozen=True, slots=True)
class LeafAliasing:
    """One leaf of the arguments and what became of its buffer.

    Attributes:
        leaf: The leaf; ``leaf.donated`` says whether donation was asked for.
        bytes: Size of the buffer on one device; of a leaf that jit dropped, over
            all of them, since how it was laid out is not known.
        alias: The module's entry that gives the buffer to a result, if any.
        output: The result that took it, where it is known by path.
        donor: Whether the module lists it as free for anything.
        reason: Why no result took it; ``None`` for an aliased leaf, and for
            one that is neither state nor donated.
        detail: The reason in words, with the names and shapes it rests on.
        fix: What to do about the reason.
        partner: The result that the leaf becomes, as far as can be told.
        site: The instruction that the reason rests on: the convert behind a
            dtype that differs.
    """

    leaf: InputLeaf
    bytes: int
    alias: Alias | None = None
    output: OutputLeaf | None = None
    donor: bool = False
    reason: Reason | None = None
    detail: str = ""
    fix: str = ""
    partner: OutputLeaf | None = None
    site: Instruction | None = None

    @property
    def path(self) -> str:
        """Pytree path of the leaf."""
        return self.leaf.path

    @property
    def aliased(self) -> bool:
        """Whether a result takes over the buffer."""
        return self.alias is not None

    @property
    def displaced(self) -> bool:
        """Whether another result than the leaf's own new value lives in its buffer."""
        return (
            self.output is not None
            and self.partner is not None
            and self.partner.index not in (None, self.output.index)
            and len(keys_of(self.leaf.path)) > 1  # a lone array has no path to go by
        )

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
        devices: How many the program runs on.
    """

    leaves: tuple[LeafAliasing, ...]
    basis: str
    devices: int = 1

    def size(self, name: str, leaves: Iterable[LeafAliasing]) -> Quantity:
        """Bytes of leaves on one device; an upper bound where jit dropped one of several devices.

        Args:
            name: What the quantity is called.
            leaves: The leaves.
        """
        leaves = tuple(leaves)
        total = sum(leaf.bytes for leaf in leaves)
        if self.devices > 1 and any(leaf.dropped for leaf in leaves):
            return Quantity(name, total, Unit.BYTES, Basis.BOUNDED, "upper bound")
        return Quantity(name, total, Unit.BYTES)

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
def find_aliasing(
    module: Module, signature: Signature, lowered: LoweredModule | None = None
) -> Aliasing:
    """Join the signature with the module's alias and donor tables.

    The module before optimization, where there is one, tells the Python line of
    a convert that optimization took the line from.

    Raises:
        Unavailable: The signature's parameter numbers do not fit the module.
    """
    slots = parameter_slots(module)
    kept = [leaf.parameter for leaf in signature.inputs if leaf.parameter is not None]
    if any(number >= len(slots) for number in kept) or (slots and not kept and signature.inputs):
        raise Unavailable("which argument is which parameter of the compiled program is not known")
    return _Join(module, signature, slots, lowered).aliasing()


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

    def __init__(
        self,
        module: Module,
        signature: Signature,
        slots: tuple[Slot, ...],
        lowered: LoweredModule | None,
    ) -> None:
        self.signature = signature
        self.slots = slots
        self.devices = module.num_partitions * module.replica_count
        self.positions = {index: n for n, index in enumerate(result_shapes(module))}
        self.outputs = {o.index: o for o in signature.outputs if o.index is not None}
        self.aliases = {(a.parameter, a.parameter_index): a for a in module.input_output_alias}
        self.donors = {(d.parameter, d.parameter_index) for d in module.buffer_donors}
        leaves = signature.by_parameter()
        slot_of = {slot.key: number for number, slot in enumerate(slots)}
        # Result to the leaf whose buffer it lives in.
        taken: dict[int, InputLeaf] = {
            self.positions[alias.output_index]: leaves[slot_of[key]]
            for key, alias in self.aliases.items()
            if alias.output_index in self.positions and slot_of.get(key) in leaves
        }
        self.partners = PartnerOutputs(
            signature, {leaf.path: index for index, leaf in taken.items()}
        )
        self.reasons = Reasons(module, signature, slots, taken, self.partners, lowered)

    def aliasing(self) -> Aliasing:
        leaves = tuple(self.one(leaf) for leaf in self.signature.inputs)
        return Aliasing(leaves, self.signature.basis, self.devices)

    def one(self, leaf: InputLeaf) -> LeafAliasing:
        partner = self.partners.by_path(leaf)
        if leaf.parameter is None:
            why = self.reasons.dropped(leaf, partner)
            return _unaliased(leaf, _global_bytes(leaf), why, partner)
        slot = self.slots[leaf.parameter]
        alias = self.aliases.get(slot.key)
        donor = slot.key in self.donors
        size = slot.shape.bytes
        if alias is not None:
            position = self.positions.get(alias.output_index)
            output = self.outputs.get(position) if position is not None else None
            across = (
                self.reasons.across_memories(leaf, slot, position, output)
                if position is not None
                else None
            )
            if across is not None:
                return _unaliased(leaf, size, across, partner)
            return LeafAliasing(leaf, size, alias, output, donor, partner=partner)
        if leaf.role is not Role.STATE and not leaf.donated:
            return LeafAliasing(leaf, size, donor=donor, partner=partner)
        why = self.reasons.not_aliased(leaf, slot, partner)
        return _unaliased(leaf, size, why, partner, donor=donor)


def _unaliased(
    leaf: InputLeaf, size: int, why: Why, partner: OutputLeaf | None, *, donor: bool = False
) -> LeafAliasing:
    return LeafAliasing(
        leaf,
        size,
        donor=donor,
        reason=why.reason,
        detail=why.detail,
        fix=why.fix,
        partner=why.partner or partner,
        site=why.site,
    )


def _global_bytes(leaf: InputLeaf) -> int:
    """Bytes of a leaf that the module does not hold, over all devices."""
    elements = 1
    for size in leaf.dimensions:
        elements *= size
    return elements * -(-BITS.get(leaf.dtype, 0) // 8)
