"""Entry parameters and results leaf by leaf, also where they come as one tuple."""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.ir import Instruction, Module, Shape

__all__ = [
    "Index",
    "Slot",
    "layouts_differ",
    "memory_space",
    "parameter_slots",
    "result_shapes",
]

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One array that the entry computation takes.

    Attributes:
        parameter: The parameter that holds it.
        index: Where in the parameter's tuple; empty if it is no tuple.
        shape: Its shape, of one partition in a partitioned module, in the layout
            and memory space that the caller has to bring it in.
    """

    parameter: Instruction
    index: Index
    shape: Shape

    @property
    def key(self) -> tuple[int, Index]:
        """Parameter number and index, as alias tables name it."""
        return self.parameter.parameter_number or 0, self.index


def parameter_slots(module: Module) -> tuple[Slot, ...]:
    """The arrays that the entry takes, in order.

    JAX passes very many arguments as one tuple on some platforms; otherwise
    slot ``k`` is parameter ``k``.
    """
    layout = module.header.entry_layout
    outside = layout[0] if layout is not None else ()
    return tuple(
        Slot(parameter, index, shape)
        for number, parameter in enumerate(module.entry.parameters)
        for index, shape in _seen_outside(
            parameter.shape, outside[number] if number < len(outside) else None
        )
    )


def result_shapes(module: Module) -> dict[Index, Shape]:
    """Shapes of the entry's results by their index, in order; ``()`` if it is no tuple.

    Layout and memory space are those that the caller gets.
    """
    layout = module.header.entry_layout
    return dict(_seen_outside(module.entry.root.shape, layout[1] if layout is not None else None))


def _seen_outside(inside: Shape, outside: Shape | None) -> list[tuple[Index, Shape]]:
    """The arrays of a shape, in the layout that the module's head has for the caller.

    The CPU's instructions lose the memory space that stands in the head.
    """
    arrays = _leaves(inside)
    if outside is None:
        return arrays
    known = dict(_leaves(outside))
    return [
        (index, known[index] if _same_array(known.get(index), shape) else shape)
        for index, shape in arrays
    ]


def _same_array(outside: Shape | None, inside: Shape) -> bool:
    return (
        outside is not None
        and outside.layout is not None
        and (outside.dtype, outside.dimensions) == (inside.dtype, inside.dimensions)
    )


def _leaves(shape: Shape, index: Index = ()) -> list[tuple[Index, Shape]]:
    if not shape.is_tuple:
        return [(index, shape)]
    return [
        leaf for k, element in enumerate(shape.elements) for leaf in _leaves(element, (*index, k))
    ]


def memory_space(shape: Shape) -> int:
    """XLA's number of the memory that an array lies in."""
    return shape.layout.memory_space if shape.layout is not None else 0


def layouts_differ(one: Shape, other: Shape) -> bool:
    """Whether two layouts order or tile elements otherwise; unprinted ones do not tell."""
    if one.layout is None or other.layout is None:
        return False
    return (one.layout.minor_to_major, one.layout.tiles) != (
        other.layout.minor_to_major,
        other.layout.tiles,
    )
