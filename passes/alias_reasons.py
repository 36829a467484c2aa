"""Why no result lives in the buffer of a leaf, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from hloscope.errors import Unavailable
from hloscope.ir import Instruction, Module
from hloscope.ir.dtypes import jax_name
from hloscope.ir.signature import InputLeaf, OutputLeaf, Signature
from hloscope.passes.entry_slots import (
    Index,
    Slot,
    layouts_differ,
    memory_space,
    parameter_slots,
    result_shapes,
)
from hloscope.passes.partner_outputs import PartnerOutputs
from hloscope.passes.value_chains import changing_convert, is_read
from hloscope.pipeline.inputs import LoweredModule
from hloscope.pipeline.pytree_paths import root_of

__all__ = ["Reason", "Reasons", "Why"]

_SPEC = re.compile(r"(?:PartitionSpec|P)\((.*)\)", re.DOTALL)
_UNSHARDED_END = re.compile(r"(?:(?:^|,\s*)None)*,?\s*$")


class Reason(StrEnum):
    """Why a leaf's buffer is not taken over by a result."""

    NOT_DONATED = "not donated"
    DROPPED = "dropped"
    REPLACED = "dropped, and its new value made beside it"
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
class Why:
    """A reason, in words and with its remedy.

    Attributes:
        reason: Which.
        detail: The names, shapes and lines that it rests on.
        fix: What to do, as sentences.
        site: The instruction that it rests on.
        partner: The result that the leaf becomes, where only the module tells.
    """

    reason: Reason
    detail: str
    fix: str
    site: Instruction | None = None
    partner: OutputLeaf | None = None


class Reasons:
    """Looks for the reasons of a module's leaves.

    Args:
        module: The optimized module.
        signature: Its leaves.
        slots: The module's parameters.
        taken: Position of a result to the leaf whose buffer it lives in.
        partners: Which result a leaf becomes, by its path.
        lowered: The module before optimization, where it is known: its
            converts are the ones that the Python code asks for.
    """

    def __init__(
        self,
        module: Module,
        signature: Signature,
        slots: tuple[Slot, ...],
        taken: Mapping[int, InputLeaf],
        partners: PartnerOutputs,
        lowered: LoweredModule | None,
    ) -> None:
        self.module = module
        self.taken = taken
        self.partners = partners
        self._named = signature.basis == "captured"
        results = result_shapes(module)
        self.indices: list[Index] = list(results)
        self.shapes = list(results.values())
        self.outputs = {o.index: o for o in signature.outputs if o.index is not None}
        self.donors = {(d.parameter, d.parameter_index) for d in module.buffer_donors}
        self._lowered = lowered
        donated = [root_of(leaf.path) for leaf in signature.inputs if leaf.donated]
        self.donated = tuple(dict.fromkeys(donated))
        self.slots = slots

    def dropped(self, leaf: InputLeaf, partner: OutputLeaf | None) -> Why:
        """The reason of a leaf that jit took out of the program."""
        if partner is not None and partner.index is None:
            return Why(Reason.FORWARDED, f"JAX hands it on as the result {_name(partner)}", "")
        unread = "jit removed it: the step never reads it"
        fits = partner is not None and (
            (partner.dtype, partner.dimensions) == (leaf.dtype, leaf.dimensions)
        )
        if partner is None or not fits:
            return Why(Reason.DROPPED, unread, "Take the leaf out of what the step is given.")
        where = _name(partner)
        return Why(
            Reason.REPLACED,
            f"{unread}, so {where} gets other memory and the old array stays",
            f"Keep it for {where} to live in, with jax.jit(step, keep_unused=True), or take it "
            "out of what the step is given.",
            partner=partner,
        )

    def not_aliased(self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf | None) -> Why:
        """The reason of a leaf that the program takes."""
        if partner is not None and partner.index is None:
            return Why(Reason.FORWARDED, f"JAX hands it on as the result {_name(partner)}", "")
        if leaf.donated is False:
            return Why(
                Reason.NOT_DONATED,
                "the step was not asked to donate it",
                self._donate_as_well(leaf),
            )
        if partner is not None and partner.index is not None:
            return self._against_partner(leaf, slot, partner, partner.index)
        return self._against_any(leaf, slot)

    def across_memories(
        self, leaf: InputLeaf, slot: Slot, position: int, output: OutputLeaf | None
    ) -> Why | None:
        """The reason against an alias of the module whose two sides lie in different memories."""
        inside, outside = slot.shape, self.shapes[position]
        if memory_space(inside) == memory_space(outside):
            return None
        why = self._in_other_memory(leaf, slot, position, output)
        joined = "; the two are paired all the same, and running that fails"
        return Why(why.reason, why.detail + joined, why.fix, partner=output)

    def _against_partner(
        self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf, number: int
    ) -> Why:
        """Why the result that the leaf becomes does not live in its buffer."""
        where = _name(partner)
        if partner.dtype != leaf.dtype:
            return self._changed_dtype(leaf, slot, number, leaf.dtype, partner.dtype)
        if partner.dimensions != leaf.dimensions:
            before, after = _sizes(leaf.dimensions), _sizes(partner.dimensions)
            return Why(
                Reason.SHAPE_DIFFERS,
                f"goes in as {before}, {where} is {after}",
                f"Return {where} as {before}: write into the array that came in "
                "(.at[...].set) in place of making one of another size.",
            )
        if self._differs_in_sharding(leaf, slot, partner):
            before = leaf.sharding or _sizes(slot.shape.dimensions)
            after = partner.sharding or _sizes(self._local(partner))
            return Why(
                Reason.SHARDING_DIFFERS,
                f"goes in as {before}, {where} is {after}",
                f"Let {where} come back as {before}: jax.jit(step, out_shardings=...) with the "
                "argument's sharding for it.",
            )
        placed = self._placed_otherwise(leaf, slot, number)
        if placed is not None:
            return placed
        other = self.taken.get(number)
        if other is not None:
            return self._taken_by(other, where)
        return self._unexplained(leaf, slot, f"{where} has its shape and dtype")

    def _taken_by(self, other: InputLeaf, where: str) -> Why:
        """The reason of a leaf whose result lives in the buffer of another."""
        detail = f"{where} lives in the buffer of {other.path}"
        own = self.partners.by_path(other)
        if own is None:
            return Why(
                Reason.TAKEN,
                f"{detail}, which has no result of its own",
                f"Return a new value of {other.path} too, or do not donate it: JAX gives a result "
                "to the first donated leaf of its shape and dtype.",
            )
        number = other.parameter
        if own.dtype != other.dtype and own.index is not None and number is not None:
            slot = self.slots[number]
            cause = self._changed_dtype(other, slot, own.index, other.dtype, own.dtype)
            told = f"{detail}, which {cause.detail}"
            return Why(Reason.TAKEN, told, cause.fix, cause.site)
        if (own.dtype, own.dimensions) != (other.dtype, other.dimensions):
            return Why(
                Reason.TAKEN,
                f"{detail}, whose own result {_name(own)} has another shape",
                f"Let {_name(own)} come back as {other.path} went in; then both fit.",
            )
        return Why(
            Reason.TAKEN,
            detail,
            "Return the new values in the order of the arguments that they replace: JAX gives a "
            "result to the first donated leaf of its shape and dtype.",
        )

    def _changed_dtype(self, leaf: InputLeaf, slot: Slot, number: int, own: str, other: str) -> Why:
        """The reason of a leaf that comes back in another dtype, with the convert if found."""
        where = self._name_of(number)
        detail = f"goes in as {own}, {where} is {other}"
        convert = self._convert_of(leaf, slot, number, other)
        after = ""
        if convert is not None and convert.location is not None:
            after = f", behind {convert.location}"
            detail += f" ({convert.name} at {convert.location})"
        elif convert is not None:
            detail += f" ({convert.name})"
        return Why(
            Reason.DTYPE_DIFFERS,
            detail,
            f"Cast the new value back before it is returned as {where}: "
            f".astype(jnp.{jax_name(own)}){after}; or keep the state in {jax_name(other)} from the "
            "start.",
            convert,
        )

    def _convert_of(
        self, leaf: InputLeaf, slot: Slot, number: int, dtype: str
    ) -> Instruction | None:
        """The convert that changes the dtype: one with a line if there is any."""
        if number >= len(self.indices):
            return None
        index = self.indices[number]
        found = changing_convert(self.module, slot, index, dtype)
        if found is not None and found.location is not None:
            return found
        asked = self._convert_asked_for(leaf, index, dtype)
        return asked if asked is not None and asked.location is not None else found

    def _convert_asked_for(self, leaf: InputLeaf, index: Index, dtype: str) -> Instruction | None:
        """The convert in the module before optimization, which is what the Python code says."""
        lowered = self._lowered_module
        if lowered is None:
            return None
        slots = parameter_slots(lowered)
        number = leaf.parameter
        if number is None or number >= len(slots) or index not in result_shapes(lowered):
            return None
        return changing_convert(lowered, slots[number], index, dtype)

    @cached_property
    def _lowered_module(self) -> Module | None:
        """The module before optimization, read when the first reason asks for it."""
        if self._lowered is None:
            return None
        try:
            return self._lowered.module
        except Unavailable:
            return None

    def _placed_otherwise(self, leaf: InputLeaf, slot: Slot, number: int) -> Why | None:
        """Where memory or layout differ, that, with both shown."""
        if number >= len(self.shapes):
            return None
        inside, outside = slot.shape, self.shapes[number]
        output = self.outputs.get(number)
        kinds = (leaf.memory_kind, output.memory_kind if output is not None else None)
        if memory_space(inside) != memory_space(outside) or (
            None not in kinds and kinds[0] != kinds[1]
        ):
            return self._in_other_memory(leaf, slot, number, output)
        where = self._name_of(number)
        if inside.dimensions == outside.dimensions and layouts_differ(inside, outside):
            return Why(
                Reason.LAYOUT_DIFFERS,
                f"goes in as {inside}, {where} is {outside}",
                "Give both one layout: the same jax.experimental.layout.Format for the argument "
                f"and, in out_shardings, for {where}; or leave both to XLA.",
            )
        return None

    def _in_other_memory(
        self, leaf: InputLeaf, slot: Slot, number: int, output: OutputLeaf | None
    ) -> Why:
        inside, outside = slot.shape, self.shapes[number]
        where = self._name_of(number)
        before = leaf.memory_kind or f"memory space {memory_space(inside)}"
        after = (
            output.memory_kind if output is not None else None
        ) or f"memory space {memory_space(outside)}"
        asked = f"memory_kind={leaf.memory_kind!r}" if leaf.memory_kind else "its memory_kind"
        return Why(
            Reason.MEMORY_SPACE_DIFFERS,
            f"goes in as {inside} in {before}, {where} is {outside} in {after}",
            f"Let {where} come back where the argument lies: jax.jit(step, out_shardings=...) "
            f"with {asked} for it; or do not donate the argument.",
        )

    def _differs_in_sharding(self, leaf: InputLeaf, slot: Slot, partner: OutputLeaf) -> bool:
        if self._local(partner) not in ((), slot.shape.dimensions):
            return True
        inside, outside = _spec(leaf.sharding), _spec(partner.sharding)
        return inside is not None and outside is not None and inside != outside

    def _local(self, output: OutputLeaf) -> tuple[int, ...]:
        """Dimensions of a result on one device."""
        if output.index is None or output.index >= len(self.shapes):
            return ()
        return self.shapes[output.index].dimensions

    def _against_any(self, leaf: InputLeaf, slot: Slot) -> Why:
        """Why no result of the leaf's shape and dtype lives in its buffer."""
        text = f"{slot.shape.dtype}{_sizes(slot.shape.dimensions)}"
        fitting = [
            number
            for number, shape in enumerate(self.shapes)
            if (shape.dtype, shape.dimensions) == (slot.shape.dtype, slot.shape.dimensions)
        ]
        if not fitting:
            return self._converted(leaf, slot) or self._without_result(leaf, slot, text)
        free = [number for number in fitting if number not in self.taken]
        if not free:
            others = sorted({self.taken[number].path for number in fitting})
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            return Why(
                Reason.TAKEN,
                f"every result that is {text} lives in another buffer: {shown}",
                f"Return one result that is {text} for each donated leaf, or do not donate "
                f"{leaf.path}.",
            )
        if all(self._placed_otherwise(leaf, slot, n) for n in free):
            placed = self._placed_otherwise(leaf, slot, free[0])
            if placed is not None:
                return placed
        return self._unexplained(leaf, slot, f"{self._name_of(free[0])} is {text}")

    def _without_result(self, leaf: InputLeaf, slot: Slot, text: str) -> Why:
        detail = f"no result is {text}"
        if not is_read(slot):
            return Why(
                Reason.NO_MATCHING_OUTPUT,
                f"{detail}, and the step never reads it",
                "Take the leaf out of what the step is given.",
            )
        return Why(
            Reason.NO_MATCHING_OUTPUT,
            detail,
            f"Return the new value of {leaf.path} from the step"
            + ("" if self._named else ", in the shape, dtype and sharding that it came in")
            + ", or do not donate it.",
        )

    def _converted(self, leaf: InputLeaf, slot: Slot) -> Why | None:
        """The one result of the leaf's shape that is the leaf in another dtype.

        Where there are no paths to match, that a result comes from the leaf
        through a convert to the result's dtype is seen in the module itself.
        """
        if not leaf.donated:
            return None
        found = [
            (number, why)
            for number, shape in enumerate(self.shapes)
            if shape.dimensions == slot.shape.dimensions
            and (why := self._changed_dtype(leaf, slot, number, slot.shape.dtype, shape.dtype)).site
            is not None
        ]
        free = [(number, why) for number, why in found if number not in self.taken]
        found = free or found
        if len(found) != 1:
            return None
        number, why = found[0]
        return Why(why.reason, why.detail, why.fix, why.site, self.outputs.get(number))

    def _name_of(self, number: int) -> str:
        """A result's path, or its number where it has none."""
        output = self.outputs.get(number)
        return _name(output) if output is not None else f"result {number}"

    def _donate_as_well(self, leaf: InputLeaf) -> str:
        """How to donate an argument beside those that are donated already."""
        root = root_of(leaf.path)
        names = tuple(dict.fromkeys((*self.donated, root)))
        if not all(name.isidentifier() for name in names):
            return f"Donate {root} too: jax.jit(step, donate_argnums=...) with its position."
        listed = repr(names) if len(names) > 1 else repr(root)
        return f"Donate {root}: jax.jit(step, donate_argnames={listed})."

    def _unexplained(self, leaf: InputLeaf, slot: Slot, fact: str) -> Why:
        if not leaf.donated:
            return Why(
                Reason.NOT_DONATED,
                f"{fact} and lives in no argument's buffer, so this one was not offered",
                self._donate_as_well(leaf),
            )
        devices = self.module.num_partitions * self.module.replica_count
        if slot.key in self.donors and devices > 1:
            return Why(
                Reason.DONOR_LEFT,
                f"{fact}, but over {devices} devices JAX could not pair them before compiling "
                "(it was given no out_shardings), and XLA left the buffer unpaired",
                "Say what the results look like, so that JAX pairs them itself: "
                "jax.jit(step, out_shardings=...) with the state's own shardings.",
            )
        return Why(
            Reason.UNUSED,
            f"it was donated and {fact}, but XLA did not join them",
            "Compare layout and memory of the argument and the result in the module's head.",
        )


def _name(output: OutputLeaf) -> str:
    return output.path or "the result"


def _sizes(dimensions: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, dimensions))}]"


def _spec(sharding: str | None) -> str | None:
    """A partition spec without the dimensions at its end that it leaves alone.

    Shardings of other kinds have no text that two of them could be compared by.
    """
    match = _SPEC.fullmatch(sharding or "")
    return _UNSHARDED_END.sub("", match[1]) if match else None
