"""Which values are the same, because the same is done to the same values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from hloscope.ir import Instruction, Shape
from hloscope.ir.dtypes import BITS
from hloscope.passes.value_flow import ValueFlow
from hloscope.pipeline.analyses import analysis

__all__ = ["Part", "ValueClasses", "View", "distinguishing_attributes", "find_value_classes"]

_IGNORED = frozenset(
    "backend_config calls control-predecessors metadata frontend_attributes".split()  # noqa: SIM905
)
_UNIQUE = frozenset(
    """
    after-all async-done async-start async-update call conditional fusion infeed outfeed
    parameter recv recv-done rng rng-get-and-update-state scan send send-done while
    """.split()  # noqa: SIM905
)
_DEPENDS_ON_CONFIG = frozenset({"convolution", "custom-call", "dot"})


@dataclass(frozen=True, slots=True)
class View:
    """How an array is laid out in the array that it is a transposition of.

    Attributes:
        value: Class of the array that is transposed; equal classes are equal values.
        order: For each dimension the one of that array.
    """

    value: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One of the arrays that a concatenation joins.

    Attributes:
        value: Its class.
        size: How much of the joined dimension it takes.
    """

    value: int
    size: int


@dataclass(slots=True)
class ValueClasses:
    """The class of each value, found when it is first asked for."""

    flow: ValueFlow
    _classes: dict[int, int] = field(default_factory=dict, repr=False)
    _numbers: dict[Hashable, int] = field(default_factory=dict, repr=False)
    _views: dict[int, View] = field(default_factory=dict, repr=False)
    _parts: dict[int, tuple[int, tuple[Part, ...]]] = field(default_factory=dict, repr=False)

    def view(self, array: Instruction) -> View | None:
        """An array as a transposition of another, often of itself.

        ``None`` for tuples and where the value is not followed.
        """
        nodes = self.flow.nodes.get(array, range(0))
        if len(nodes) != 1 or array.shape.is_tuple:
            return None
        return self._seen(self._class(nodes[0]), array.shape)

    def parts(self, value: int) -> tuple[int, tuple[Part, ...]] | None:
        """The dimension that a concatenation joins, and what; ``None`` for other values."""
        return self._parts.get(value)

    def _class(self, wanted: int) -> int:
        """Inputs first, without recursion: chains are as long as programs."""
        classes, inputs = self._classes, self.flow.inputs
        pending = [wanted]
        while pending:
            node = pending[-1]
            if node in classes:
                pending.pop()
                continue
            followed = inputs[node] if self._is_followed(node) else ()
            missing = [source for source in followed if source not in classes]
            if missing:
                pending += missing
            else:
                pending.pop()
                classes[node] = self._made(node)
        return classes[wanted]

    def _is_followed(self, node: int) -> bool:
        """What loops, branches and chance make is like nothing else; this breaks all cycles."""
        flow, maker = self.flow, self.flow.makers[node]
        if flow.moved[node]:
            return True
        if node not in flow.nodes[maker]:
            return True  # it stands for all arrays of a tuple
        if node in flow.opaque or maker.opcode in _UNIQUE:
            return False
        return maker.attributes.get("custom_call_has_side_effect") != "true"

    def _made(self, node: int) -> int:
        flow, maker = self.flow, self.flow.makers[node]
        if not self._is_followed(node):
            return self._number(("node", node))
        inputs = tuple(self._classes[source] for source in flow.inputs[node])
        if flow.moved[node]:
            return inputs[0]
        own = flow.nodes[maker]
        if node not in own:
            return self._number(("all of", inputs))
        if maker.opcode == "constant":
            if "..." in maker.payload or not maker.payload:
                return self._number(("node", node))
            return self._number(("constant", _type_of(maker.shape), maker.payload))
        if len(inputs) == 1 and len(own) == 1 and not maker.shape.is_tuple:
            source = maker.operands[0].shape if maker.operands else None
            if source is not None and source.is_array:
                found = self._renamed(maker, inputs[0], source)
                if found is not None:
                    return found
        found = self._number(
            (
                maker.opcode,
                _type_of(maker.shape),
                node - own.start,
                inputs,
                distinguishing_attributes(maker),
                maker.attributes.get("backend_config")
                if maker.opcode in _DEPENDS_ON_CONFIG
                else None,
            )
        )
        if maker.opcode == "concatenate" and maker.dimensions:
            self._joined(found, maker, inputs)
        return found

    def _joined(self, value: int, maker: Instruction, inputs: tuple[int, ...]) -> None:
        axis, shapes = maker.dimensions[0], [operand.shape for operand in maker.operands]
        if len(shapes) == len(inputs) and all(0 <= axis < shape.rank for shape in shapes):
            sizes = [shape.dimensions[axis] for shape in shapes]
            parts = tuple(map(Part, inputs, sizes))
            self._parts[value] = axis, parts

    def _renamed(self, maker: Instruction, value: int, source: Shape) -> int | None:
        """The class of what only writes its operand in another way."""
        opcode, shape = maker.opcode, maker.shape
        if opcode == "convert":
            return value if _is_exact(source.dtype, shape.dtype) else None
        if opcode == "transpose":
            return self._transposed(value, source, maker.dimensions)
        if opcode in ("bitcast", "reshape") and source.dtype == shape.dtype:
            if opcode == "bitcast":
                order = _order_of(source, shape)
                if order is not None:
                    return self._transposed(value, source, order)
                if not (_in_row_major(source) and _in_row_major(shape)):
                    return None
            return self._number(("reshape", value, source.dimensions, shape.dimensions))
        return None

    def _transposed(self, value: int, source: Shape, dimensions: tuple[int, ...]) -> int | None:
        seen = self._seen(value, source)
        if sorted(dimensions) != list(range(len(seen.order))):
            return None
        order = tuple(seen.order[axis] for axis in dimensions)
        if order == tuple(range(len(order))):
            return seen.value
        found = self._number(("transpose", seen.value, order))
        self._views[found] = View(seen.value, order)
        return found

    def _seen(self, value: int, shape: Shape) -> View:
        found = self._views.get(value)
        return View(value, tuple(range(shape.rank))) if found is None else found

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


@analysis
def find_value_classes(flow: ValueFlow) -> ValueClasses:
    """Prepare to compare values, in time linear in those that are asked for.

    Two values are of one class if the same operation with the same attributes
    makes them of operands of the same classes. Copies, barriers and conversions
    to a type that holds every value of the first are looked through, fusions
    and calls followed. What a loop, a branch or a source of random numbers
    makes is like nothing else. Constants are compared where their text is
    printed, custom calls with their configuration.
    """
    return ValueClasses(flow)


def distinguishing_attributes(instruction: Instruction) -> Hashable:
    """Attributes that decide on an instruction's result, as something that can be compared."""
    return tuple(
        (key, value) for key, value in sorted(instruction.attributes.items()) if key not in _IGNORED
    )


def _type_of(shape: Shape) -> Hashable:
    if shape.is_tuple:
        return tuple(_type_of(element) for element in shape.elements)
    return shape.dtype, shape.dimensions


_EXPONENTS = {"bf16": 8, "f16": 5, "f32": 8, "f64": 11}


def _is_exact(source: str, result: str) -> bool:
    """Whether a floating-point type holds every value of another."""
    if source not in _EXPONENTS or result not in _EXPONENTS:
        return False
    return BITS[source] < BITS[result] and _EXPONENTS[source] <= _EXPONENTS[result]


def _in_row_major(shape: Shape) -> bool:
    layout = shape.layout
    return layout is None or layout.minor_to_major == tuple(reversed(range(shape.rank)))


def _order_of(source: Shape, result: Shape) -> tuple[int, ...] | None:
    """The transposition that a bitcast does, if both shapes have one order in memory."""
    if source.layout is None or result.layout is None or source.rank != result.rank:
        return None
    before = source.layout.minor_to_major
    after = result.layout.minor_to_major
    if len(before) != source.rank or len(after) != result.rank:
        return None
    order = [0] * result.rank
    for old, new in zip(before, after, strict=True):
        if source.dimensions[old] != result.dimensions[new]:
            return None
        order[new] = old
    return tuple(order)
