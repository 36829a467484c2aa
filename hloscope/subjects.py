"""What can be audited: a compiled artifact, or a bare module from a dump."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from hloscope.errors import TargetError, Unavailable
from hloscope.ir import Module, Signature
from hloscope.ir.closed_over import ClosedOver
from hloscope.ir.jaxpr_count import JaxprCount
from hloscope.ir.jaxpr_promotions import JaxprPromotions
from hloscope.ir.named_points import NamedPoints
from hloscope.ir.scan import count_instructions
from hloscope.pipeline.findings import Basis, Quantity, Unit
from hloscope.pipeline.inputs import (
    CompilerSetup,
    CompileTimes,
    KnownLiteral,
    KnownLiterals,
    LoweredModule,
    MeshAxes,
    XlaCost,
    XlaMemory,
)

if TYPE_CHECKING:
    from hloscope.capture.artifact import Artifact

__all__ = ["ArtifactSubject", "ModuleSubject"]

_VERSIONS = ("jax", "jaxlib")
_BEFORE = "handed to XLA"
_LONGEST_WARNING = 160


class ModuleSubject:
    """A module without what JAX knew of it: a dump, or text from stdin.

    Args:
        module: What is looked at.
        name: The user's words for it.
        choice: How the module was chosen where the source holds several.
        facts: More for the head of the report.
        read_lowered: Reads the module before optimization, where a dump holds it.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        *,
        choice: str = "",
        facts: Mapping[str, str] | None = None,
        read_lowered: Callable[[], Module] | None = None,
    ) -> None:
        self.module = module
        self.name = name
        self._choice = choice
        self._facts = facts or {}
        self._lowered = LoweredModule(read_lowered) if read_lowered is not None else None

    def inputs(self) -> Mapping[type, object]:
        """The module; an analysis infers a signature from it."""
        return {
            Module: self.module,
            XlaCost: Unavailable("a bare module comes without a cost analysis"),
            XlaMemory: Unavailable("a bare module comes without a memory analysis"),
            ClosedOver: Unavailable("a bare module comes without the arrays that its step held"),
            JaxprCount: Unavailable("a bare module comes without the jaxpr that it was made of"),
            CompileTimes: Unavailable("a bare module does not say how long its compile took"),
            CompilerSetup: Unavailable("a bare module does not say how it was compiled"),
            JaxprPromotions: Unavailable("a bare module comes without its jaxpr"),
            LoweredModule: self._lowered
            or Unavailable("the module before optimization is not known"),
            NamedPoints: Unavailable("a bare module comes without the names that its step gave"),
        }

    def header(self) -> Mapping[str, str | Quantity]:
        """What the module says of itself."""
        devices = self.module.num_partitions * self.module.replica_count
        name = f"{self.module.name} ({self._choice})" if self._choice else self.module.name
        return {
            "module": name,
            "target": "unknown (the module does not say)",
            "devices": Quantity("devices", devices),
            "instructions": Quantity("instructions", self.module.num_instructions),
            _BEFORE: _before(self._lowered),
            "scheduled": "yes" if self.module.is_scheduled else "no",
            **self._facts,
        }


class ArtifactSubject:
    """A step that hloscope compiled, with all that JAX and XLA told of it."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.name = artifact.source

    @property
    def module(self) -> Module:
        """The optimized module."""
        return self.artifact.module

    def inputs(self) -> Mapping[type, object]:
        """The artifact's parts by type."""
        from hloscope.capture.artifact import Artifact
        from hloscope.chips import Chip, Target, parse_target

        artifact = self.artifact
        found: dict[type, object] = {
            Artifact: artifact,
            Module: artifact.module,
            Signature: artifact.signature,
            KnownLiterals: KnownLiterals(
                {x.name: KnownLiteral(x.kind, x.value, x.digest) for x in artifact.literals},
                artifact.literals_note or "",
            ),
            XlaCost: Unavailable(artifact.xla_cost_note or "XLA gave no cost analysis")
            if artifact.xla_cost is None
            else XlaCost(artifact.xla_cost, artifact.xla_cost_note or ""),
            XlaMemory: Unavailable(artifact.xla_memory_note or "XLA gave no memory analysis")
            if artifact.xla_memory is None
            else XlaMemory(artifact.xla_memory),
            ClosedOver: artifact.closed_over
            or Unavailable(artifact.closed_over_note or "the artifact holds no closed-over arrays"),
            JaxprCount: artifact.jaxpr
            or Unavailable(artifact.jaxpr_note or "the artifact holds no count of the jaxpr"),
            JaxprPromotions: artifact.promotions
            or Unavailable(artifact.promotions_note or "the artifact holds no promotions"),
            LoweredModule: self._lowered()
            or Unavailable("the module before optimization is not known"),
            NamedPoints: artifact.named_points
            or Unavailable(artifact.named_points_note or "the artifact holds no named values"),
        }
        found[CompileTimes] = CompileTimes(
            *(artifact.timings.get(phase) for phase in ("trace", "lower", "compile"))
        )
        found[CompilerSetup] = CompilerSetup(
            artifact.slow_folds, artifact.persistent_cache, artifact.full_rematerializations
        )
        if artifact.mesh:
            found[MeshAxes] = MeshAxes(artifact.mesh)
        try:
            target = parse_target(artifact.target)
        except TargetError as unknown:
            found[Target] = Unavailable(unknown.message)
        else:
            found[Target] = target
            if target.chip is not None:
                found[Chip] = target.chip
        return found

    def header(self) -> Mapping[str, str | Quantity]:
        """Target, mesh, versions, and the seconds of each phase."""
        artifact = self.artifact
        facts: dict[str, str | Quantity] = {
            "target": artifact.target
            if artifact.device_kind == artifact.target.partition(":")[0]
            else f"{artifact.target} ({artifact.device_kind})",
            "devices": Quantity("devices", artifact.devices),
        }
        if artifact.mesh:
            facts["mesh"] = ", ".join(f"{axis}={size}" for axis, size in artifact.mesh.items())
        if artifact.flags:
            facts["flags"] = ", ".join(f"{name}={value}" for name, value in artifact.flags.items())
        facts["versions"] = ", ".join(
            f"{name} {artifact.versions[name]}" for name in _VERSIONS if name in artifact.versions
        )
        for phase in ("trace", "lower", "compile"):
            if phase in artifact.timings:
                facts[phase] = Quantity(phase, artifact.timings[phase], Unit.SECONDS)
        if artifact.cached:
            facts["cache"] = "hit; the seconds of compile are those of the first time"
        facts["instructions"] = Quantity("instructions", artifact.module.num_instructions)
        facts[_BEFORE] = _before(self._lowered())
        if caveat := self._caveat():
            facts["caveat"] = caveat
        if artifact.warnings:
            facts["warning"] = "; ".join(map(_in_short, artifact.warnings))
        return facts

    def _lowered(self) -> LoweredModule | None:
        text = self.artifact.lowered_text
        if text is None:
            return None
        return LoweredModule(
            lambda: cast("Module", self.artifact.lowered), lambda: count_instructions(text)
        )

    def _caveat(self) -> str:
        """What a compile without the chip does not check, in the chip table's words."""
        from hloscope.chips import parse_target

        try:
            chip = parse_target(self.artifact.target).chip
        except TargetError:
            return ""
        return (chip.caveat or "") if chip is not None else ""


def _before(lowered: LoweredModule | None) -> Quantity:
    """Instructions of the module that JAX handed to XLA."""
    name = "instructions handed to XLA"
    try:
        count = lowered.num_instructions if lowered is not None else None
    except Unavailable:
        count = None
    return Quantity(name, count, basis=Basis.EXACT if count is not None else Basis.UNKNOWN)


def _in_short(warning: str) -> str:
    """The first sentence of a warning, or as much of it as a head has room for."""
    first = " ".join(warning.split()).partition(". ")[0]
    return first if len(first) <= _LONGEST_WARNING else f"{first[:_LONGEST_WARNING]}..."
