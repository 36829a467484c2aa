"""HS903."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.buffer_kinds import BufferKind, Phase, phase_of
from hloscope.passes.memory_findings import copied_argument, held_site, is_roomy
from hloscope.passes.memory_use import HeldBuffer, MemoryUse
from hloscope.passes.named_residuals import NamedResiduals
from hloscope.passes.residuals import Residual, Residuals
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["residuals_dominate"]

_SHOWN = 5
_PRODUCTS = frozenset(("dot_general", "ragged_dot", "ragged_dot_general"))
_ROOMY = " While the chip has room to spare, leave it: keeping is the faster choice."
_BY_PRIMITIVE = "by the primitive that made the values"

_Kept = tuple[HeldBuffer, Residual | None]


@rule("HS903", "residuals-dominate", Category.MEMORY)
def residuals_dominate(
    use: MemoryUse,
    residuals: Residuals,
    named: NamedResiduals | None,
    limits: Limits,
    chip: Chip | None,
) -> Iterator[Finding]:
    """Finds a peak that is mostly activations kept for the backward pass.

    What it does:
        Adds up what lives at the peak, was written in the forward pass and is
        read in the backward pass, by the transforms in the scope names; copies
        and casts of arguments are left out, for no policy spares them. It is
        reported from ``residual_share`` (half) of the peak and ``memory_bytes``
        (16 MiB) on, with the lines that keep most and with how much comes
        from matrix products: that much stays under ``dots_saveable``.

    Why it costs:
        These arrays are there only so that they need not be computed twice.
        They grow with the batch, the length and the depth, and are usually what
        keeps a larger batch from fitting. This is a choice rather than a
        mistake: as long as the program fits with room to spare, keeping them
        is the faster one, and below half of the chip's memory it is a note.

    Example:
            for layer in params:
                h = block(layer, h)        # scores, masks and both sides of the MLP are kept

    Use instead:
        Keep the products and compute the rest again, or keep what you name:

            block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
    """
    kept: list[_Kept] = [
        (held, residuals.of(held.buffer))
        for held in use.alive
        if held.kind is BufferKind.RESIDUAL
        and copied_argument(held) is None
        # The backward pass may have written over it by now.
        and phase_of(held.origin.op_name) is not Phase.BACKWARD
    ]
    total = sum(held.size for held, _ in kept)
    if total < limits.memory_bytes or total < limits.residual_share * use.peak:
        return
    roomy = is_roomy(use, chip)
    products = sum(held.size for held, residual in kept if _primitive(held, residual) in _PRODUCTS)
    cost = Quantity("bytes kept", total, Unit.BYTES, use.basis, use.model)
    yield Finding(
        code="HS903",
        name="residuals-dominate",
        category=Category.MEMORY,
        severity=Severity.NOTE if roomy else Severity.WARNING,
        message="most of the peak is kept for the backward pass",
        site=held_site(*_dearest(kept)),
        evidence=(
            cost,
            Quantity("arrays", len(kept)),
            Quantity("share of the peak", total / use.peak, Unit.SHARE, use.basis, use.model),
            Quantity("of products", products, Unit.BYTES, Basis.MODELLED, _BY_PRIMITIVE),
        ),
        cost=cost,
        fix=_fix(total, products, [p.words for p in named.policies] if named is not None else [])
        + (_ROOMY if roomy else ""),
        notes=(*_lines(kept), *_names(kept, named)),
    )


def _fix(total: int, products: int, policies: Sequence[str]) -> str:
    others = units.byte_size(total - products)
    if not policies:
        if 2 * products < total:
            return (
                "Wrap the layer in jax.checkpoint with policy dots_saveable, which keeps products "
                f"and computes up to {others} of the rest again."
            )
        return (
            "Wrap the layer in jax.checkpoint: most of this is products, so dots_saveable would "
            "keep it; keep only the layer's input, or what checkpoint_name names."
        )
    return (
        f"The step's policies ({', '.join(policies)}) keep this: choose one that keeps less, "
        "name fewer values, or wrap what stands outside of jax.checkpoint."
    )


def _primitive(held: HeldBuffer, residual: Residual | None) -> str:
    """The JAX primitive that computed the values, by the op_name."""
    origin = residual.origin if residual is not None else held.origin
    return origin.op_name.partition(";")[0].rpartition("/")[2]


def _line(kept: _Kept) -> str:
    """The line that computed it."""
    held, residual = kept
    origin = residual.origin if residual is not None else held.origin
    return str(origin.location or held.instruction.name)


def _dearest(kept: Sequence[_Kept]) -> _Kept:
    """The largest array of the line that keeps most."""
    sizes: Counter[str] = Counter()
    for each in kept:
        sizes[_line(each)] += each[0].size
    line = max(sizes, key=sizes.__getitem__)
    return max((each for each in kept if _line(each) == line), key=lambda each: each[0].size)


def _lines(kept: Sequence[_Kept]) -> Iterator[str]:
    """The lines that keep most; of a loop's stacks also what each iteration keeps."""
    sizes: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    for held, residual in kept:
        line = _line((held, residual))
        sizes[line] += held.size
        if residual is not None and residual.made.layers is not None:
            layers[line] += held.size // residual.made.layers
    for line, size in sizes.most_common(_SHOWN):
        each = f", {units.byte_size(layers[line])} an iteration" if layers[line] else ""
        yield f"{line}: {units.byte_size(size)}{each}"


def _names(kept: Sequence[_Kept], named: NamedResiduals | None) -> Iterator[str]:
    """What named values keep of it."""
    if named is None:
        return
    alive = {id(held.buffer) for held, _ in kept}
    sizes: Counter[str] = Counter()
    for value in named.values:
        sizes[value.point.name] += sum(
            r.buffer.size for r in value.residuals if id(r.buffer) in alive
        )
    for name, size in sizes.most_common(_SHOWN):
        if size:
            yield f"named {name}: {units.byte_size(size)}"
