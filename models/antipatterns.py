"""What a model can be made to do wrong on purpose: ``--bad NAME``, without importing JAX.

Each switch builds the same model with one antipattern in it, and the audit must
answer with the rule that the switch names, and with no other new one. They are
the audit's own acceptance test, and examples of what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["ANTIPATTERNS", "Antipattern"]


@dataclass(frozen=True, slots=True)
class Antipattern:
    """One ``--bad NAME``.

    Attributes:
        name: The same name for every architecture that has the switch.
        rule: Code of the rule that must find it.
        help: One line on what the model then does.
        targets: Where the rule can see it; empty for every target.
        sets: Options that the switch is a value of.
        needs: Options without which it does nothing, and the values that they need.
    """

    name: str
    rule: str
    help: str
    targets: str = ""
    sets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    needs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def _by_name(switches: Iterable[Antipattern]) -> dict[str, Antipattern]:
    return {switch.name: switch for switch in switches}


ANTIPATTERNS = _by_name(
    (
        Antipattern(
            "baked-table",
            "HS301",
            "numpy makes the table of positions, for the whole batch: a constant of the program",
        ),
        Antipattern(
            "closed-over",
            "HS301",
            "the captions' embeddings are an array that the step closes over, and no argument",
        ),
        Antipattern(
            "float32-head",
            "HS401",
            "the last part of the model multiplies in float32, the rest in bfloat16",
            needs=MappingProxyType({"dtype": "bfloat16"}),
        ),
        Antipattern(
            "masked-experts",
            "HS502",
            "every expert runs on every token, and zero weighs what a token did not choose",
            sets=MappingProxyType({"experts": "dense"}),
        ),
        Antipattern(
            "odd-length",
            "HS503",
            "the vocabulary is not padded: an odd number of rows, which no tile divides",
            targets="GPUs",
        ),
        Antipattern(
            "per-step-null",
            "HS504",
            "a frozen text encoder encodes the empty caption again in every step",
        ),
        Antipattern("undonated-state", "HS701", "the step does not donate its state"),
        Antipattern(
            "unrolled-layers",
            "HS801",
            "every layer is spelled out, in place of a loop over them",
            sets=MappingProxyType({"scan_layers": "false"}),
        ),
    )
)
"""Every switch by its name."""
