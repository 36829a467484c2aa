"""Entry parameters and results leaf by leaf, also where they come as one tuple."""

from __future__ import annotations

from dataclasses import dataclass

from hloscope.ir import Instruction, Module, Shape

__all__ = ["Index", "Slot", "parameter_slots", "result_shapes"]

Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One array that the entry computation takes.

    Attributes:
        parameter: The parameter that holds it.
        index: Where in the parameter's tuple; empty if it is no tuple.
        shape: Its shape, of one partition in a partitioned module.
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
    return tuple(
        Slot(parameter, index, shape)
        for parameter in module.entry.parameters
        for index, shape in _leaves(parameter.shape)
    )


def result_shapes(module: Module) -> dict[Index, Shape]:
    """Shapes of the entry's results by their index, in order; ``()`` if it is no tuple."""
    return dict(_leaves(module.entry.root.shape))


def _leaves(shape: Shape, index: Index = ()) -> list[tuple[Index, Shape]]:
    if not shape.is_tuple:
        return [(index, shape)]
    return [
        leaf for k, element in enumerate(shape.elements) for leaf in _leaves(element, (*index, k))
    ]
