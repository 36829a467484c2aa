"""What every exchange is for: its mesh axes, its part of the step, the leaves that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.errors import InputError
from hloscope.ir import Instruction, Module
from hloscope.ir.attributes import parse_integers
from hloscope.ir.scan import split_list
from hloscope.ir.signature import InputLeaf, Signature
from hloscope.passes.buffer_kinds import named_origin
from hloscope.passes.collectives import Collective, CollectiveKind, Collectives
from hloscope.passes.flow_parts import FlowParts
from hloscope.passes.leaf_sources import LeafSources
from hloscope.passes.mesh_axes import axes_of_groups, axes_of_pairs
from hloscope.passes.origins import Origins
from hloscope.passes.step_parts import StepPart, part_of
from hloscope.passes.updated_leaves import UpdatedLeaves
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.inputs import MeshAxes

__all__ = ["Exchange", "Exchanges", "find_exchanges"]

_MOST_CALLS = 6
_ENDS = ("-done", "-update")
_REPEATS = frozenset({"while", "conditional"})


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is known of one exchange beside its bytes.

    Attributes:
        collective: The exchange.
        named: The instruction whose op_name and line it is known by.
        axes: Mesh axes that it runs along; ``None`` where the mesh is unknown
            or its groups follow none of its axes.
        part: The part of the step that it belongs to.
        by_flow: Whether the part is told by data flow, for want of a name.
        dtypes: Element types that cross the links.
        moved: The leaves of the arguments whose elements it moves, converted or not.
        updated: Leaves whose new value its result becomes, as a summed gradient does.
        sources: Leaves that what it sends is computed from, where it has none of these.
    """

    collective: Collective
    named: Instruction
    axes: tuple[str, ...] | None
    part: StepPart
    by_flow: bool
    dtypes: tuple[str, ...]
    moved: tuple[InputLeaf, ...]
    updated: tuple[InputLeaf, ...]
    sources: tuple[InputLeaf, ...]

    @property
    def leaf(self) -> str | None:
        """Pytree path of the argument whose elements it moves, of the first of several."""
        return self.moved[0].path if self.moved else None

    @property
    def about(self) -> str | None:
        """That, or the path of the leaf that it updates."""
        return self.leaf or (self.updated[0].path if self.updated else None)


@dataclass(frozen=True, slots=True)
class Exchanges:
    """All of a program's exchanges, as :class:`Collectives` has them."""

    rows: Sequence[Exchange]


@analysis
def find_exchanges(
    module: Module,
    collectives: Collectives,
    origins: Origins,
    signature: Signature | None,
    mesh: MeshAxes | None,
    updated: UpdatedLeaves | None,
    sources: LeafSources | None,
    flow_parts: FlowParts | None,
) -> Exchanges:
    """Join each exchange with its mesh axes, its scope and the arguments that it is about."""
    leaves = signature.by_parameter() if signature is not None else {}
    rows = []
    for collective in collectives.rows:
        instruction = collective.instruction
        named = _named(instruction)
        sent = _sent(instruction, collective.kind)
        arguments = dict.fromkeys(_argument(operand, origins, module) for operand in sent)
        moved = tuple(leaves[number] for number in arguments if number in leaves)
        new = updated.of(instruction) if updated is not None and not moved else ()
        behind: dict[str, InputLeaf] = {}
        if sources is not None and not moved and not new:
            behind = {leaf.path: leaf for value in sent for leaf in sources.of(value)}
        part, by_flow = part_of(named), False
        if not named.op_name and flow_parts is not None:
            found = flow_parts.of(instruction)
            part, by_flow = found or part, found is not None
        rows.append(
            Exchange(
                collective,
                named,
                _axes(instruction, collective.kind, mesh),
                part,
                by_flow,
                tuple(dict.fromkeys(x.dtype for operand in sent for x in operand.shape.leaves())),
                moved,
                new,
                tuple(behind.values()),
            )
        )
    return Exchanges(rows)


def _argument(value: Instruction, origins: Origins, module: Module) -> int | None:
    """Number of the entry parameter whose elements a value holds, converted or not."""
    for _ in range(_MOST_CALLS):
        value = origins.of(value)
        if value.opcode != "convert":
            break
        value = value.operands[0]
    is_argument = value.opcode == "parameter" and value.computation is module.entry
    return value.parameter_number if is_argument else None


def _named(collective: Instruction) -> Instruction:
    """The collective, or where XLA left it no name what its operands were made of.

    A collective that is called (by an ``async-start``, say) takes them from the call.
    """
    pending = [collective]
    for _ in range(_MOST_CALLS):
        for value in pending:
            named = named_origin(value)
            if named.op_name:
                return named
        outside = [_handed_in(operand) for value in pending for operand in value.operands]
        outside += [_handed_in(value) for value in pending]
        pending = [value for value in outside if value is not None]
    return collective


def _handed_in(value: Instruction) -> Instruction | None:
    """What stands behind a parameter of a computation that one place calls."""
    # The end of an asynchronous call names the computation once more.
    callers = [c for c in value.computation.callers if not c.opcode.endswith(_ENDS)]
    number = value.parameter_number
    if number is None or len(callers) != 1 or callers[0].opcode in _REPEATS:
        return None
    return callers[0].operands[number] if number < len(callers[0].operands) else None


def _sent(instruction: Instruction, kind: CollectiveKind) -> Sequence[Instruction]:
    """Operands that cross the links; offsets, sizes and the array to fill do not."""
    if kind in (CollectiveKind.RAGGED_ALL_TO_ALL, CollectiveKind.SEND):
        return instruction.operands[:1]
    return instruction.operands


def _axes(
    instruction: Instruction, kind: CollectiveKind, mesh: MeshAxes | None
) -> tuple[str, ...] | None:
    if mesh is None or kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE):
        return None
    try:
        if kind is CollectiveKind.PERMUTE:
            text = instruction.attributes.get("source_target_pairs", "{}").strip()
            pairs = [parse_integers(pair) for pair in split_list(text[1:-1])]
            return axes_of_pairs([(pair[0], pair[1]) for pair in pairs if len(pair) == 2], mesh)
        return axes_of_groups(instruction.replica_groups or (), mesh)
    except (InputError, ValueError):
        return None
