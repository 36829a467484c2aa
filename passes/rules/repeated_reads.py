"""HS510."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.chips import Chip, ChipKind
from hloscope.ir import Instruction
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.repeated_reads import RepeatedRead, RepeatedReads
from hloscope.passes.scopes import collapse_scope
from hloscope.passes.score_arrays import ScoreArrays
from hloscope.passes.step_parts import StepPart, part_of
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["repeated_reads"]

_MODEL = "whole arrays from memory, one pass where none waits for the other"
_ONCE = "; each branch taken, loops of unknown length run once"
_SHOWN = 4
_SCOPE_PARTS = 3
_STAGES = 4  # of a sum that the compiler takes apart
_MAXIMA = (
    "Take the scale of a quantized array from the maxima of the steps before (delayed scaling), so "
    "that the pass which rounds it also measures it; compute a softmax with its maximum in one "
    "kernel (Pallas)."
)


@rule("HS510", "repeated-reads", Category.REDUNDANT_WORK)
def repeated_reads(
    repeated: RepeatedReads,
    traffic: Traffic,
    scores: ScoreArrays | None,
    chip: Chip | None,
    limits: Limits,
) -> Iterator[Finding]:
    """Finds sums that read an array again which another pass over memory has at hand.

    What it does:
        Looks for launches that only sum a large array, as the gradients of biases and of
        norms' scales do, where another launch writes that array, or reads it in whole, and
        neither waits for the other but for the array. Launches with a product in them,
        kernels and changes of layout are left out, and so are attention's scores (HS501) and
        arrays that stay in a TPU's vector memory. Maxima count as sums do: the scales of
        quantized arrays are such. What the sums read again is summed by source
        line, loops multiplied out, and listed from ``reread_bytes`` (16 MiB) and
        ``traffic_share`` (1%) of the program's memory traffic on. Sums that XLA computes in
        one pass with the rest are not found.

    Why it costs:
        The array goes through memory once more, and nothing is computed but a sum of it. In a
        layer with a bias the sum reads as much of the gradient as each of its two products.

    Example:
            h = x @ w + b            # the gradient of b sums over the rows of h's gradient
            y = norm(h) * scale      # so does that of scale, over another array

    Use instead:
        Leave out a bias that does nothing (in front of a batch norm, or beside attention's
        keys) or little; compute several projections of one input as one, so that their biases
        are one sum; or write the norm's gradient as one kernel (``jax.custom_vjp`` with Pallas)
        that keeps the sums while it goes over the rows:

            h = x @ w                # no bias: the batch norm has its own
    """
    total = traffic.total()
    lines: dict[object, list[RepeatedRead]] = {}
    of_attention = {one for found in scores.attentions for one in found.arrays} if scores else set()
    for row in repeated.rows:
        if of_attention.intersection((row.array, *row.sums[0].operands)):
            continue
        location = _named(row.sums[0]).location
        place = (location.file, location.line) if location else row.sums[0]
        lines.setdefault(place, []).append(row)
    for rows in lines.values():
        again = sum(row.nominal_bytes for row in rows)
        if again >= limits.reread_bytes and again >= limits.traffic_share * total > 0:
            yield _finding(rows, again, again / total, chip, limits)


def _named(launch: Instruction) -> Instruction:
    """The launch, the sum inside of it or the next stage of the sum that has a line in Python."""
    stages = [launch]
    while len(stages) < _STAGES and len(stages[-1].users) == 1:
        stages.append(stages[-1].users[0])
    candidates = [
        one
        for stage in stages
        for one in (stage, *(reversed(stage.called[0].instructions) if stage.called else ()))
    ]
    return next((one for one in candidates if one.location is not None), launch)


def _finding(
    rows: Sequence[RepeatedRead], again: int, share: float, chip: Chip | None, limits: Limits
) -> Finding:
    largest = max(rows, key=lambda row: row.nominal_bytes)
    sums = [launch for row in rows for launch in row.sums]
    exact = all(row.times.exact is not None for row in rows)
    model = _MODEL if exact else _MODEL + _ONCE
    cost = Quantity("bytes read again", again, Unit.BYTES, Basis.MODELLED, model)
    first = largest.sums[0]
    how = "writes" if largest.written else "reads"
    times = "" if largest.times.exact == 1 else f", {largest.times} times"
    maxima = all(_is_maximum(launch) for launch in sums)
    does = "takes the largest of" if maxima else "sums"
    notes = [
        f"largest: {first.name} {does} {_array(first, largest)}, which {largest.beside.name} "
        f"{how}{times}"
    ]
    scopes = dict.fromkeys(
        scope for launch in sums if (scope := collapse_scope(_op_name(launch), _SCOPE_PARTS))
    )
    if len(scopes) > 1:
        more = f" and {len(scopes) - _SHOWN} more" if len(scopes) > _SHOWN else ""
        notes.append(f"in {', '.join(list(scopes)[:_SHOWN])}{more}")
    one, more = ("a maximum", "maxima") if maxima else ("a sum", "sums")
    many = f"{len(sums)} {more} read arrays" if len(sums) > 1 else f"{one} reads an array"
    return Finding(
        code="HS510",
        name="repeated-reads",
        category=Category.REDUNDANT_WORK,
        severity=limits.severity(share),
        message=f"{many} again that another pass has at hand",
        site=instruction_site(first, line_of=_named(first)),
        evidence=(
            cost,
            Quantity("share of memory traffic", share, Unit.SHARE, Basis.MODELLED, model),
            Quantity("launches", len(sums)),
        ),
        cost=cost,
        fix=_fix(first, chip) if not maxima else _MAXIMA,
        notes=tuple(notes),
    )


def _is_maximum(launch: Instruction) -> bool:
    """Whether what a launch reduces by is a maximum, as of what is to be quantized."""
    inside = [one for called in launch.called for one in called.instructions]
    reduces = [one for one in (launch, *inside) if one.opcode in ("reduce", "reduce-window")]
    roots = {called.root.opcode for reduce in reduces for called in reduce.called}
    return bool(roots) and roots <= {"maximum", "minimum"}


def _op_name(launch: Instruction) -> str:
    return launch.op_name or _named(launch).op_name


def _array(launch: Instruction, row: RepeatedRead) -> str:
    """The array as the launch's operand has it."""
    reads = [operand for operand in launch.operands if _stands_for(operand, row.array)]
    return str(reads[0].shape.without_layout()) if reads else row.array.name


def _stands_for(operand: Instruction, array: Instruction) -> bool:
    while operand is not array and operand.opcode in ("bitcast", "get-tuple-element"):
        operand = operand.operands[0]
    return operand is array


def _fix(first: Instruction, chip: Chip | None) -> str:
    part = part_of(_named(first))
    if part is StepPart.OTHER:
        return (
            "Take the sum in the expression that makes the array, or, where it is a metric, only "
            "every so many steps."
        )
    if part is not StepPart.BACKWARD:
        return (
            "Ask for the sum alone where that is enough (jax.nn.logsumexp and one logit for "
            "log_softmax, the mean of squares beside the mean for a variance), or compute the "
            "array and its sum in one kernel (Pallas)."
        )
    drop = (
        "It is the gradient of what was spread over the array, as a bias or a scale is: leave out "
        "biases that do nothing (in front of a batch norm, beside attention's keys) or little, or "
        "make one projection (and one bias) of several"
    )
    if chip is not None and chip.kind is ChipKind.CPU:
        return f"{drop}; look at the chip that it runs on, whose compiler fuses otherwise."
    return f"{drop}; a norm's gradient can be one kernel (jax.custom_vjp with Pallas)."
