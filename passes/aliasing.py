"""What became of each argument's buffer, and why a state leaf's was not reused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module, Shape
from hloscope.ir.dtypes import BITS
from hloscope.ir.header import Alias
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.entry_slots import Slot, parameter_slots, result_shapes
from hloscope.passes.partner_outputs import PartnerOutputs
from hloscope.passes.value_chains import changing_convert
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
    LAYOUT_DIFFERS = "layout differs"
    MEMORY_SPACE_DIFFERS = "memory space differs"
    TAKEN = "another leaf took the output"
    DONOR_LEFT = "donated without a known result, and XLA found none"
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
    partner: OutputLeaf | None = None
    site: Instruction | None = None

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


@dataclass(frozen=True, slots=True)
class _Why:
    """A reason with the words and the instruction that it rests on."""

    reason: Reason
    detail: str
    site: Instruction | None = None
    partner: OutputLeaf | None = None


class _Join:
    """Signature and module side by side."""

    def __init__(self, module: Module, signature: Signature, slots: tuple[Slot, ...]) -> None:
        self.module = module
        self.signature = signature
        self.slots = slots
        self.shapes = list(result_shapes(module).values())
        self.indices = list(result_shapes(module))
        positions = {index: n for n, index in enumerate(self.indices)}
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
            why = self.why_dropped(partner)
            return LeafAliasing(
                leaf, _global_bytes(leaf), reason=why.reason, detail=why.detail, partner=partner
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
        why = self.why_not(leaf, slot, partner)
        return LeafAliasing(
            leaf,
            size,
            donor=donor,
            reason=why.reason,
            detail=why.detail,
            partner=why.partner or partner,
            site=why.site,
        )

    def why_dropped(self, partner: OutputLeaf | None) -> _Why:
        if partner is not None and partner.index is None:
            return _Why(Reason.FORWARDED, f"JAX hands it on as the result {partner.path}")
        return _Why(Reason.DROPPED, "jit removed it: the step never reads it")

    def why_not(self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf | None) -> _Why:
        if partner is not None and partner.index is None:
            return _Why(Reason.FORWARDED, f"JAX hands it on as the result {partner.path}")
        if leaf.donated is False:
            return _Why(Reason.NOT_DONATED, "the step was not asked to donate it")
        if partner is not None and partner.index is not None:
            return self.against_partner(leaf, slot, partner, partner.index)
        return self.against_any(leaf, slot)

    def against_partner(
        self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf, number: int
    ) -> _Why:
        """Why the result that the leaf becomes does not live in its buffer."""
        where = partner.path or "the result"
        if partner.dtype != leaf.dtype:
            return self.changed_dtype(slot, number, where, leaf.dtype, partner.dtype)
        if partner.dimensions != leaf.dimensions:
            return _Why(
                Reason.SHAPE_DIFFERS,
                f"goes in as {_sizes(leaf.dimensions)}, {where} is {_sizes(partner.dimensions)}",
            )
        if self.differs_in_sharding(leaf, slot, partner):
            return _Why(
                Reason.SHARDING_DIFFERS,
                f"goes in as {leaf.sharding or _sizes(slot.shape.dimensions)}, {where} is "
                f"{partner.sharding or _sizes(self.local(partner))}",
            )
        placed = self.placed_otherwise(slot, number, where)
        if placed is not None:
            return placed
        other = self.taken.get(number)
        if other is not None:
            return _Why(Reason.TAKEN, f"{where} lives in the buffer of {other.path}")
        return self.unexplained(leaf, slot, f"{where} has its shape and dtype")

    def changed_dtype(self, slot: Slot, number: int, where: str, own: str, other: str) -> _Why:
        """The reason of a leaf that comes back in another dtype, with the convert if found."""
        detail = f"goes in as {own}, {where} is {other}"
        if number >= len(self.indices):
            return _Why(Reason.DTYPE_DIFFERS, detail)
        convert = changing_convert(self.module, slot, self.indices[number], other)
        if convert is not None:
            line = f" at {convert.location}" if convert.location is not None else ""
            detail += f" ({convert.name}{line})"
        return _Why(Reason.DTYPE_DIFFERS, detail, convert)

    def placed_otherwise(self, slot: Slot, number: int, where: str) -> _Why | None:
        """Where memory space or layout differ, that, with both shown."""
        if number >= len(self.shapes):
            return None
        inside, outside = slot.shape, self.shapes[number]
        if _space(inside) != _space(outside):
            return _Why(
                Reason.MEMORY_SPACE_DIFFERS,
                f"goes in as {inside} (memory space {_space(inside)}), "
                f"{where} is {outside} (memory space {_space(outside)})",
            )
        if inside.dimensions == outside.dimensions and _layouts_differ(inside, outside):
            return _Why(Reason.LAYOUT_DIFFERS, f"goes in as {inside}, {where} is {outside}")
        return None

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

    def against_any(self, leaf: InputLeaf, slot: Slot) -> _Why:
        """Why no result of the leaf's shape and dtype lives in its buffer."""
        text = f"{slot.shape.dtype}{_sizes(slot.shape.dimensions)}"
        fitting = [
            number
            for number, shape in enumerate(self.shapes)
            if (shape.dtype, shape.dimensions) == (slot.shape.dtype, slot.shape.dimensions)
        ]
        if not fitting:
            return self.converted(leaf, slot) or _Why(
                Reason.NO_MATCHING_OUTPUT, f"no result is {text}"
            )
        free = [number for number in fitting if number not in self.taken]
        if not free:
            others = sorted({self.taken[number].path for number in fitting})
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            return _Why(
                Reason.TAKEN, f"every result that is {text} lives in another buffer: {shown}"
            )
        output = self.outputs.get(free[0])
        where = output.path if output else "a result"
        if leaf.donated and all(self.placed_otherwise(slot, n, where) for n in free):
            placed = self.placed_otherwise(slot, free[0], where)
            if placed is not None:
                return placed
        return self.unexplained(leaf, slot, f"{where} is {text}")

    def converted(self, leaf: InputLeaf, slot: Slot) -> _Why | None:
        """The one free result of the leaf's shape that is the leaf in another dtype.

        A bare module has no paths to match; that a result comes from the leaf
        through a convert to the result's dtype is seen in the module itself.
        """
        if not leaf.donated:
            return None
        found = [
            (number, why)
            for number, shape in enumerate(self.shapes)
            if number not in self.taken
            and shape.dimensions == slot.shape.dimensions
            and (
                why := self.changed_dtype(
                    slot, number, self.name_of(number), slot.shape.dtype, shape.dtype
                )
            ).site
            is not None
        ]
        if len(found) != 1:
            return None
        number, why = found[0]
        return _Why(why.reason, why.detail, why.site, self.outputs.get(number))

    def name_of(self, number: int) -> str:
        output = self.outputs.get(number)
        return (output.path if output is not None else "") or f"result {number}"

    def unexplained(self, leaf: InputLeaf, slot: Slot, fact: str) -> _Why:
        if not leaf.donated:
            return _Why(
                Reason.NOT_DONATED,
                f"{fact} and lives in no argument's buffer, so this one was not offered",
            )
        devices = self.module.num_partitions * self.module.replica_count
        if slot.key in self.donors and devices > 1:
            return _Why(
                Reason.DONOR_LEFT,
                f"{fact}, but over {devices} devices JAX could not pair them before compiling "
                "(it was given no out_shardings), and XLA left the buffer unpaired",
            )
        return _Why(Reason.UNUSED, f"it was donated and {fact}, but XLA did not join them")


def _space(shape: Shape) -> int:
    return shape.layout.memory_space if shape.layout is not None else 0


def _layouts_differ(one: Shape, other: Shape) -> bool:
    """Whether two layouts order or tile elements otherwise; unprinted ones do not tell."""
    if one.layout is None or other.layout is None:
        return False
    return (one.layout.minor_to_major, one.layout.tiles) != (
        other.layout.minor_to_major,
        other.layout.tiles,
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
