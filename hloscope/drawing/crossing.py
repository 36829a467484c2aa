"""What a layer's picture counts as kept, told apart as ``hloscope memory`` tells it apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloscope import units
from hloscope.drawing.checkpoints import Layer
from hloscope.drawing.flow import Value, shape_at
from hloscope.drawing.step_flow import StepFlow
from hloscope.passes.residuals import Residuals
from hloscope.passes.step_parts import StepPart
from hloscope.pipeline.audit import plural

__all__ = ["Crossing"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """The arrays that the backward pass of a layer reads and does not make itself.

    Attributes:
        kept: Arrays of the forward pass.
        unnamed: How many of these ``hloscope memory`` does not count: it goes by
            names alone, and what XLA merged may bear that of the repetition.
        neither: Arrays that neither pass makes and both may read: positions,
            masks and the like, which are no residuals.
        elsewhere: Residuals of the step that are not among these, of other
            layers, the head and the loss; ``None`` in a module that is not
            scheduled, where residuals are not known.
        looped: Whether the arrays hold their part of every layer.
    """

    kept: Sequence[Value]
    unnamed: int
    neither: Sequence[Value]
    elsewhere: int | None
    looped: bool

    @classmethod
    def of(cls, layer: Layer, step: StepFlow, residuals: Residuals | None) -> Crossing:
        """Hold a layer's values against the residuals of its step."""
        found = residuals.residuals if residuals is not None else ()
        makers = {maker for maker, _ in layer.values}
        here = [residual for residual in found if makers.intersection(residual.made.chain)]
        of_forward = {instruction for residual in here for instruction in residual.made.chain}
        kept: list[Value] = []
        neither: list[Value] = []
        for value in layer.values:
            aside = value[0] not in of_forward and step.parts[value[0]] is StepPart.OTHER
            (neither if aside else kept).append(value)
        elsewhere = None if residuals is None else len(found) - len(here)
        unnamed = sum(maker not in of_forward for maker, _ in kept) if residuals is not None else 0
        return cls(kept, unnamed, neither, elsewhere, layer.place.looped)

    def said(self) -> str:
        """The counts in words."""
        return ", ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield f"{plural(len(self.kept), 'array')} kept"
        if self.kept:
            size = units.byte_size(sum(_bytes(value) for value in self.kept))
            yield f"{size} for all layers" if self.looped else size
        if self.unnamed:
            yield f"{self.unnamed} of them left out by hloscope memory, which goes by names"
        if self.neither:
            size = units.byte_size(sum(_bytes(value) for value in self.neither))
            yield f"beside {len(self.neither)} that neither pass computes ({size})"
        if self.elsewhere:
            yield f"{self.elsewhere} more outside of it"


def _bytes(value: Value) -> int:
    made, index = value
    return shape_at(made.shape, index).bytes
