"""HS703."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.passes.alias_copies import AliasCopies, AliasCopy, CopyKind
from hloscope.passes.aliasing import Aliasing
from hloscope.passes.finding_sites import instruction_site
from hloscope.passes.pytree_paths import root_of
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["alias_defeated_by_copy"]

# The alias holds and nothing is wrong: what is lost is a pass over the bytes.
_WARNING_SHARE = 0.25
_SHOWN_READERS = 3
_SHOWN_COPIES = 3

_WHY = {
    CopyKind.READ_LATER: "its old value is read after the new one is there",
    CopyKind.CARRIED: "a loop updates it while the old value is still needed",
    CopyKind.ITERATION: "each iteration of a loop copies it",
    CopyKind.INTO: "the result is made elsewhere and copied in",
}
_FIXES = {
    CopyKind.READ_LATER: (
        "Use the old value before the new one is made, or return what is needed of it "
        "in place of reading it again."
    ),
    CopyKind.CARRIED: (
        "Do not read the argument after the loop that updates it; take from it what is "
        "needed before the loop."
    ),
    CopyKind.ITERATION: (
        "Update the carry in place in the loop's body (one .at[...].set a carry), and read it "
        "before it is updated."
    ),
    CopyKind.INTO: (
        "Return each updated array at the place of the argument that it replaces, and update it "
        "in its own order: a fusion that transposes cannot work in place."
    ),
}


@rule("HS703", "alias-defeated-by-copy", Category.SHARDING)
def alias_defeated_by_copy(
    copies: AliasCopies, aliasing: Aliasing, limits: Limits
) -> Iterator[Finding]:
    """Finds aliased arguments that the program copies whole all the same.

    What it does:
        Looks, for every argument that a result takes the buffer of, whether the
        optimized module copies the whole array: because the old value is read
        after the new one was written, because a loop carries it, in each
        iteration of a loop, or into the buffer because the result was made
        elsewhere. Copies to another memory space (a TPU's prefetch) and to
        another layout are not counted. Copies under one argument for one reason
        are one finding, where they come to ``donation_bytes`` or more.

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
    aliased_bytes = sum(leaf.bytes for leaf in aliasing.leaves if leaf.aliased)
    groups: dict[tuple[str, CopyKind], list[AliasCopy]] = {}
    for copy in copies.copies:
        if copy.defeats:
            groups.setdefault((root_of(copy.leaf.leaf.path), copy.kind), []).append(copy)
    for (root, kind), members in groups.items():
        if sum(_moved(copy) for copy in members) >= limits.donation_bytes:
            yield _finding(root, kind, members, aliased_bytes)


def _moved(copy: AliasCopy) -> int:
    return copy.bytes * copy.times.nominal


def _finding(root: str, kind: CopyKind, copies: Sequence[AliasCopy], aliased_bytes: int) -> Finding:
    first = copies[0]
    exact = all(copy.times.exact is not None for copy in copies)
    cost = Quantity(
        "bytes copied",
        sum(_moved(copy) for copy in copies),
        Unit.BYTES,
        Basis.EXACT if exact else Basis.MODELLED,
        None if exact else "loops of unknown length run once",
    )
    copied = {copy.leaf.leaf.path: copy.leaf.bytes for copy in copies}
    share = sum(copied.values()) / aliased_bytes if aliased_bytes else 0.0
    what = (
        f"{len(copied)} leaves of {root} are" if len(copied) > 1 else f"{first.leaf.leaf.path} is"
    )
    reader = next((r for copy in copies for r in copy.readers if r.location is not None), None)
    notes = [_readers(copy) for copy in copies[:_SHOWN_COPIES] if copy.readers]
    if len(copies) > _SHOWN_COPIES:
        notes.append(f"and {len(copies) - _SHOWN_COPIES} more copies")
    return Finding(
        code="HS703",
        name="alias-defeated-by-copy",
        category=Category.SHARDING,
        severity=Severity.WARNING if share >= _WARNING_SHARE else Severity.NOTE,
        message=f"{what} aliased and copied all the same: {_WHY[kind]}",
        site=instruction_site(first.instruction, first.leaf.leaf.path, reader),
        evidence=(
            cost,
            Quantity("bytes of the arguments", sum(copied.values()), Unit.BYTES),
            Quantity("share of the aliased bytes", share, Unit.SHARE),
        ),
        cost=cost,
        fix=_FIXES[kind],
        notes=tuple(notes),
    )


def _readers(copy: AliasCopy) -> str:
    shown = []
    for reader in copy.readers[:_SHOWN_READERS]:
        name = "a result of the step" if reader.is_root else reader.name
        where = f" ({reader.location})" if reader.location is not None else ""
        shown.append(name + where)
    more = len(copy.readers) - len(shown)
    text = ", ".join(shown) + (f" and {more} more" if more else "")
    path, name = copy.leaf.leaf.path, copy.instruction.name
    if copy.kind is CopyKind.INTO:
        return f"{path}: {name} copies in what {text} made"
    return f"{path}: {name} is read by {text}"
