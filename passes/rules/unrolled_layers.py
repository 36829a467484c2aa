"""HS801."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.layer_chains import LayerChains
from hloscope.passes.repeated_blocks import RepeatedBlocks
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.inputs import CompileTimes, LoweredModule
from hloscope.pipeline.rules import Limits, rule

__all__ = ["unrolled_layers"]

_LINEAR = "linear in the instructions"
_LEFT = "one block is left of those that are compiled alike"
_LONG = 60.0  # seconds of a compile that people wait for and talk about


@rule("HS801", "unrolled-layers", Category.COMPILE_TIME)
def unrolled_layers(
    module: Module,
    blocks: RepeatedBlocks,
    chains: LayerChains,
    times: CompileTimes | None,
    lowered: LoweredModule | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds programs that spell one block out for every layer.

    What it does:
        Looks for layers in two ways, and for the number of them with which loops would do
        without most of the program. Equal products that depend on each other at even
        distances stand in a chain of layers, whatever a compiler has fused them with. And
        instructions are equal where opcode, shapes, attributes and the structure of what
        they call agree, also where they do not depend on each other, as in gradient
        accumulation that is spelled out. Either is reported where loops would do without
        60% (``repeated_share``) of the products or instructions, from four repetitions on,
        in programs of ``repeated_instructions`` (1,000) and more. The levels of a UNet and
        stacks of few layers stay below that.

    Why it costs:
        Tracing, lowering and compiling take time for every instruction: forty
        layers take about forty times as long as one. The program that runs is
        no faster for it.

    Example:
            for block in blocks:
                x = block(x)

    Use instead:
        Stack the layers' parameters and loop over them; JAX compiles one layer:

            def body(x, params):
                return block(params, x), None
            x, _ = jax.lax.scan(body, x, stacked)

        With flax, ``nnx.scan`` or ``nn.scan`` do the stacking.
    """
    if blocks.instructions < limits.repeated_instructions:
        return
    if chains.share >= limits.repeated_share and chains.example is not None:
        number, example = chains.times, chains.example
    elif blocks.saved >= limits.repeated_share and blocks.example is not None:
        number, example = blocks.times, blocks.example
    else:
        return
    share = blocks.saved_by(number)
    # The blocks count what several call with each of them; the module's own size is known.
    left = round(module.num_instructions * (1 - share))
    evidence = [
        Quantity("blocks", number),
        Quantity("instructions", module.num_instructions),
        Quantity("with a loop", left, Unit.COUNT, Basis.MODELLED, _LEFT),
    ]
    with suppress(Unavailable):
        if lowered is not None:
            evidence.append(Quantity("handed to XLA", lowered.num_instructions))
    cost = Quantity(
        "instructions repeated",
        module.num_instructions - left,
        Unit.COUNT,
        Basis.MODELLED,
        _LEFT,
    )
    severity = Severity.NOTE
    seconds = times.compile if times is not None else None
    if seconds is not None:
        cost = Quantity("compile saved", seconds * share, Unit.SECONDS, Basis.MODELLED, _LINEAR)
        evidence.append(Quantity("compile", seconds, Unit.SECONDS))
        severity = Severity.WARNING if seconds >= _LONG else Severity.NOTE
    yield Finding(
        code="HS801",
        name="unrolled-layers",
        category=Category.COMPILE_TIME,
        severity=severity,
        message=f"one block stands in the program {number} times",
        site=instruction_site(example),
        evidence=tuple(evidence),
        cost=cost,
        fix="Stack the layers' parameters and run them in jax.lax.scan (nnx.scan, nn.scan).",
    )
