"""HS703."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from hloscope.ir import Instruction
from hloscope.passes.alias_copies import AliasCopies, AliasCopy, CopyKind, line_of
from hloscope.passes.aliasing import Aliasing, LeafAliasing
from hloscope.passes.finding_sites import instruction_site
from hloscope.pipeline.config import Configuration
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.pytree_paths import root_of
from hloscope.pipeline.rules import Limits, rule

__all__ = ["alias_defeated_by_copy"]

# The alias holds and nothing is wrong: what is lost is a pass over the bytes.
_WARNING_SHARE = 0.25
_SHOWN_READERS = 3
_SHOWN_COPIES = 3


class _Cause(StrEnum):
    """What forces the copies of a leaf, the strongest first; a sentence of one leaf or of many."""

    DISPLACED = "another result than {its} new value was given {its} {buffer}"
    EXCHANGED = "{it} {comes} back as the {value} of another argument"
    LAYOUT = "{it} {comes} back in another layout"
    STILL_READ = "{its} old {value} {is} still read when {its} {buffer} could be written"
    RETURNED = "{its} old {value} {is} returned as well"
    TRANSPOSED = "XLA updates {it} in another order than that of the {argument}"
    OUT_OF_PLACE = "XLA does not make the new {value} in place"
    ITERATION = "each iteration of a loop copies {it}"


_CAUSES = {
    CopyKind.READ_LATER: _Cause.STILL_READ,
    CopyKind.BESIDE: _Cause.STILL_READ,
    CopyKind.CARRIED: _Cause.STILL_READ,
    CopyKind.RETURNED: _Cause.RETURNED,
    CopyKind.ITERATION: _Cause.ITERATION,
    CopyKind.EXCHANGED: _Cause.EXCHANGED,
    CopyKind.LAYOUT: _Cause.LAYOUT,
    CopyKind.NOT_IN_PLACE: _Cause.OUT_OF_PLACE,
    CopyKind.INTO: _Cause.OUT_OF_PLACE,
}
_ONE = {
    "it": "it",
    "its": "its",
    "buffer": "buffer",
    "value": "value",
    "is": "is",
    "comes": "comes",
    "argument": "argument",
}
_MANY = {
    "it": "them",
    "its": "their",
    "buffer": "buffers",
    "value": "values",
    "is": "are",
    "comes": "come",
    "argument": "arguments",
}
_ABOUT_ITS_OWN_RESULT = (_Cause.STILL_READ, _Cause.OUT_OF_PLACE)
_FIXES = {
    _Cause.STILL_READ: (
        "Take what is needed of the old value{at} before it is updated (of the update itself in "
        "place of new - old), or return that in place of reading the whole array again."
    ),
    _Cause.ITERATION: (
        "Update the carry in place in the loop's body (one .at[...].set a carry), and read it "
        "before it is updated{at}."
    ),
    _Cause.EXCHANGED: (
        "Return each new value at the place of the argument that it replaces, and exchange the "
        "names in Python, which copies nothing."
    ),
    _Cause.LAYOUT: (
        "Give both one layout: the same jax.experimental.layout.Format for the argument and, in "
        "out_shardings, for the result; or leave both to XLA."
    ),
    _Cause.RETURNED: (
        "Do not return the old array beside the new one, or do not donate it; where arguments "
        "change places, return each new value at the place of the argument that it replaces."
    ),
    _Cause.TRANSPOSED: (
        "Keep the array in the order that it is updated in{at}, as a rule that of its gradient (a "
        "library's convolution has one of its own for kernels), or let it be: it costs one more "
        "pass over the bytes."
    ),
    _Cause.OUT_OF_PLACE: (
        "Compute the new value{at} from the old one element by element, in its own order: a "
        "product of the old value or a transpose cannot be made where that value lies."
    ),
}


@rule("HS703", "alias-defeated-by-copy", Category.SHARDING)
def alias_defeated_by_copy(
    copies: AliasCopies, aliasing: Aliasing, limits: Limits, config: Configuration
) -> Iterator[Finding]:
    """Finds aliased arguments that the program copies whole all the same.

    What it does:
        Looks, for every argument that a result takes the buffer of, whether the
        optimized module copies the whole array, out of the buffer or into it, and
        what forces that: the old value is still read when the buffer could be
        written (the consumer is named), or it is returned; the buffer was given to
        another result, because JAX gives a result to the first donated leaf of
        its shape and dtype; each iteration of a loop copies it; arguments come
        back crosswise; argument and result have different layouts; or the new
        value is not made in place (a product of the old one, or a transpose).
        Copies to another memory space (a TPU's prefetch) and layouts that change
        on the way are not counted. Copies under one argument for one reason are
        one finding, where they come to ``donation_bytes`` or more.

    Why it costs:
        The alias should have saved memory and time. With the copy, the array
        exists twice again while both values are needed, and its bytes are read
        and written once more in every step.

    Example:
            @functools.partial(jax.jit, donate_argnums=0)
            def step(buffers, x):
                older, newer = buffers
                return newer, older * 0.5 + x          # each lives in the other's buffer

    Use instead:
        Return each value at the place of the argument that it replaces, and
        let Python exchange the names, which copies nothing:

            @functools.partial(jax.jit, donate_argnums=0)
            def step(older, newer, x):
                return older * 0.5 + x

            older, newer = newer, step(older, newer, x)
    """
    by_leaf: dict[tuple[str, bool], list[AliasCopy]] = {}
    for copy in copies.copies:
        if copy.defeats:
            in_loop = copy.kind is CopyKind.ITERATION
            by_leaf.setdefault((copy.leaf.path, in_loop), []).append(copy)
    groups: dict[tuple[str, _Cause, str], list[AliasCopy]] = {}
    for (path, _), of_leaf in by_leaf.items():
        key = (root_of(path), _cause(of_leaf), config.entry_for("HS703", path))
        groups.setdefault(key, []).extend(of_leaf)
    for (root, cause, _), members in groups.items():
        if sum(_moved(copy) for copy in members) >= limits.donation_bytes:
            yield _finding(root, cause, members, aliasing)


def _cause(of_leaf: Sequence[AliasCopy]) -> _Cause:
    """The strongest of a leaf's causes, so that each leaf is told once."""
    causes = {
        _Cause.TRANSPOSED if copy.how == "transpose" else _CAUSES[copy.kind] for copy in of_leaf
    }
    if of_leaf[0].leaf.displaced and causes != {_Cause.ITERATION}:
        causes.add(_Cause.DISPLACED)
    return next(cause for cause in _Cause if cause in causes)


def _moved(copy: AliasCopy) -> int:
    return copy.bytes * copy.times.nominal


def _finding(root: str, cause: _Cause, copies: Sequence[AliasCopy], aliasing: Aliasing) -> Finding:
    first = copies[0]
    exact = all(copy.times.exact is not None for copy in copies)
    cost = Quantity(
        "bytes copied",
        sum(_moved(copy) for copy in copies),
        Unit.BYTES,
        Basis.EXACT if exact else Basis.MODELLED,
        None if exact else "loops of unknown length run once",
    )
    copied = {copy.leaf.path: copy.leaf.bytes for copy in copies}
    aliased_bytes = sum(leaf.bytes for leaf in aliasing.leaves if leaf.aliased)
    share = sum(copied.values()) / aliased_bytes if aliased_bytes else 0.0
    what = f"{len(copied)} leaves of {root} are" if len(copied) > 1 else f"{first.leaf.path} is"
    why = cause.format(**(_MANY if len(copied) > 1 else _ONE))
    reader = next((copy.located for copy in copies if copy.located is not None), None)
    notes = [_forced(copy) for copy in copies[:_SHOWN_COPIES] if copy.forced_by]
    if len(copies) > _SHOWN_COPIES:
        notes.append(f"and {len(copies) - _SHOWN_COPIES} more copies")
    return Finding(
        code="HS703",
        name="alias-defeated-by-copy",
        category=Category.SHARDING,
        severity=Severity.WARNING if share >= _WARNING_SHARE else Severity.NOTE,
        message=f"{what} aliased and copied all the same: {why}",
        site=instruction_site(first.instruction, first.leaf.path, reader),
        evidence=(
            cost,
            Quantity("bytes of the arguments", sum(copied.values()), Unit.BYTES),
            Quantity("share of the aliased bytes", share, Unit.SHARE),
        ),
        cost=cost,
        fix=_fix(cause, first.leaf, reader, aliasing),
        notes=tuple(notes),
    )


def _fix(cause: _Cause, leaf: LeafAliasing, reader: Instruction | None, aliasing: Aliasing) -> str:
    partner, output = leaf.partner, leaf.output
    if cause is _Cause.DISPLACED and partner is not None and output is not None:
        owners = (one for one in aliasing.leaves if one.partner is not None and one is not leaf)
        owner = next((one for one in owners if one.partner == output), None)
        if owner is not None and owner.reason is not None:
            return (
                f"Mend {owner.path} ({owner.reason.value}): once it can take {output.path}, "
                f"{partner.path} gets the buffer of {leaf.path}."
            )
        return (
            f"Return {partner.path} before {output.path}: JAX gives a buffer to the first result "
            "of its shape and dtype."
        )
    at = f" at {reader.location}" if reader is not None and reader.location is not None else ""
    fix = _FIXES[cause].format(at=at)
    if aliasing.basis != "captured" and output is not None and cause in _ABOUT_ITS_OWN_RESULT:
        fix += f" If {output.path} is not its new value, return that one before it."
    return fix


def _forced(copy: AliasCopy) -> str:
    shown = []
    for name, reader in zip(copy.forced_by_names(_SHOWN_READERS), copy.forced_by, strict=False):
        located = line_of(reader)
        shown.append(name + (f" ({located.location})" if located is not None else ""))
    more = len(copy.forced_by) - len(shown)
    text = ", ".join(shown) + (f" and {more} more" if more else "")
    told = copy.why
    if copy.leaf.displaced and copy.leaf.output is not None and copy.leaf.partner is not None:
        told = f"its buffer is that of {copy.leaf.output.path}, not of {copy.leaf.partner.path}"
    return f"{copy.leaf.path}: {told}; {copy.instruction.name} is forced by {text}"
