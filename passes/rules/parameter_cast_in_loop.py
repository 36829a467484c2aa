"""HS403."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.parameter_casts import ParameterCast, ParameterCasts
from hloscope.passes.step_parts import is_recomputation
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["parameter_cast_in_loop"]

_SHOWN = 5
_ONCE = "each branch taken, loops of unknown length run once"


@rule("HS403", "parameter-cast-in-loop", Category.DTYPE_CHURN)
def parameter_cast_in_loop(
    casts: ParameterCasts, traffic: Traffic, limits: Limits
) -> Iterator[Finding]:
    """Finds arguments that are converted at every use or iteration where once would do.

    What it does:
        Follows each conversion to a narrower type back to the argument of the
        program that it reads, also out of loops that hand the argument through
        unchanged. All conversions of one argument are compared with converting
        it once, ahead of all uses, by the bytes that either way moves. Layers
        that a scan slices from one array and converts one by one are converted
        once and not listed. Listed by source line, from ``traffic_share`` (1%)
        of the program's memory traffic on.

    Why it costs:
        A loop over microbatches or time steps reads the float32 weights again
        each time, twice the bytes of the bfloat16 copy that it multiplies with.
        Converting once costs six bytes an element, and each use after that two
        where it was four; from four uses on that is less.

    Example:
            def microbatch(grads, batch):
                params = jax.tree.map(lambda p: p.astype(jnp.bfloat16), state.params)
                ...
            grads, _ = jax.lax.scan(microbatch, zeros, batches)

    Use instead:
        Convert ahead of the loop:

            params = jax.tree.map(lambda p: p.astype(jnp.bfloat16), state.params)

            def microbatch(grads, batch):
                ...
            grads, _ = jax.lax.scan(microbatch, zeros, batches)
    """
    total = traffic.total()
    lines: dict[object, list[ParameterCast]] = {}
    for cast in casts.rows:
        if cast.wasted_bytes and cast.times_over > 1:
            location = cast.converts[0].instruction.location
            place = (location.file, location.line) if location else cast.parameter
            lines.setdefault((place, cast.result), []).append(cast)
    for rows in lines.values():
        wasted = sum(cast.wasted_bytes for cast in rows)
        if total and wasted >= limits.traffic_share * total:
            yield _finding(rows, wasted, wasted / total, limits)


def _finding(rows: Sequence[ParameterCast], wasted: int, share: float, limits: Limits) -> Finding:
    ordered = sorted(rows, key=lambda cast: -cast.wasted_bytes)
    first = ordered[0]
    convert = first.converts[0].instruction
    path = first.parameter.op_name or first.parameter.name
    many = f"{len(rows)} arguments are" if len(rows) > 1 else "an argument is"
    often = "in every iteration of a loop" if first.in_loop else "at every use"
    known = all(c.times.exact is not None for cast in rows for c in cast.converts)
    basis, model = (Basis.EXACT, None) if known else (Basis.MODELLED, _ONCE)
    cost = Quantity("bytes that once would save", wasted, Unit.BYTES, basis, model)
    now, once = sum(cast.bytes for cast in rows), sum(cast.bytes_once for cast in rows)
    listed = [
        f"{cast.parameter.op_name or cast.parameter.name}: converted {cast.times_over:.3g} times"
        for cast in ordered[:_SHOWN]
    ]
    if len(ordered) > _SHOWN:
        listed.append(f"and {len(ordered) - _SHOWN} more")
    if any(is_recomputation(c.instruction) for cast in rows for c in cast.converts):
        listed.append(
            "rematerialization converts again: a copy made once stays in memory until the "
            "backward pass is through"
        )
    return Finding(
        code="HS403",
        name="parameter-cast-in-loop",
        category=Category.DTYPE_CHURN,
        severity=limits.severity(share),
        message=f"{many} converted to {first.result} {often}",
        site=instruction_site(convert, path),
        evidence=(
            cost,
            Quantity("share of memory traffic", share, Unit.SHARE, basis, model),
            Quantity("bytes as it is", now, Unit.BYTES, basis, model),
            Quantity("bytes converting once", once, Unit.BYTES, basis, model),
        ),
        cost=cost,
        fix="Convert it once, ahead of the loop or of the first use, and hand the copy in.",
        notes=tuple(listed),
    )
