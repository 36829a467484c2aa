"""Every parameter of a program and what became of its buffer, as a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.ir import Module
from hloscope.ir.closed_over import ClosedOver
from hloscope.ir.signature import Signature
from hloscope.passes.alias_copies import AliasCopies, AliasCopy
from hloscope.passes.aliasing import Aliasing, LeafAliasing, Reason
from hloscope.passes.entry_slots import parameter_slots
from hloscope.passes.missed_donations import MissedDonation, MissedDonations
from hloscope.pipeline.audit import AuditSubject, plural, trust_of
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.pytree_paths import ends_alike
from hloscope.pipeline.session import Session

__all__ = ["SHOWN", "report_aliases"]

SHOWN = 30
"""Parameters that are listed unless asked otherwise."""

_ALIASED = "aliased"
_UNKNOWN_COPIES = "loops of unknown length run once"


def report_aliases(session: Session, subject: AuditSubject, *, top: int = SHOWN) -> Report:
    """Say of every parameter whether a result lives in its buffer, or why not.

    Args:
        session: Gives the analyses.
        subject: Gives the report its head.
        top: How many rows a table has at most; 0 for all.

    Raises:
        Unavailable: Which argument is which parameter is not known.
    """
    aliasing = session.get(Aliasing)
    copies = session.get(AliasCopies)
    missed = session.get(MissedDonations)
    others = list(_without_leaf(session))
    tables = [_totals(aliasing), _parameters(aliasing, others, top)]
    if copies.copies:
        tables.append(_copies(copies.copies, top))
    if missed.missed:
        tables.append(_missed(missed.missed, top))
    trust, missing = trust_of(session)
    notes = []
    if aliasing.basis != "captured":
        notes.append(
            "read from the module alone: whether an argument that is neither aliased nor a "
            "donor was donated is not known, and arguments that jit dropped left no trace."
        )
    if missing:
        notes.append(missing)
    return Report(
        command="alias",
        subject=subject.name,
        header=subject.header(),
        tables=tuple(tables),
        trust=trust,
        summary=_summary(aliasing, copies),
        notes=tuple(notes),
    )


def _summary(aliasing: Aliasing, copies: AliasCopies) -> str:
    aliased = [leaf for leaf in aliasing.leaves if leaf.aliased]
    size = units.byte_size(sum(leaf.bytes for leaf in aliased))
    text = f"{len(aliased)} of {plural(len(aliasing.leaves), 'parameter')} aliased to a result"
    text += f", {size}." if aliased else "."
    useless = [leaf for leaf in aliasing.leaves if _unusable(leaf)]
    if useless:
        bytes_ = units.byte_size(sum(leaf.bytes for leaf in useless))
        text += f" {len(useless)} donated and not usable, {bytes_}."
    defeated = [copy for copy in copies.copies if copy.defeats]
    if defeated:
        moved = sum(copy.bytes * copy.times.nominal for copy in defeated)
        text += f" Aliased ones are copied all the same: {units.byte_size(moved)} a step."
    return text


def _unusable(leaf: LeafAliasing) -> bool:
    return bool(leaf.leaf.donated) and not leaf.aliased and leaf.reason is not Reason.FORWARDED


def _outcome(leaf: LeafAliasing) -> str:
    """What became of a leaf, in the words that the totals count by."""
    if leaf.aliased:
        return _ALIASED
    if leaf.reason is None:
        return Reason.NOT_DONATED.value if leaf.leaf.donated is False else "not aliased"
    if leaf.leaf.donated and leaf.reason is not Reason.FORWARDED:
        return f"donated, {leaf.reason.value}"
    return leaf.reason.value


def _totals(aliasing: Aliasing) -> Table:
    groups: dict[str, list[LeafAliasing]] = {}
    for leaf in aliasing.leaves:
        groups.setdefault(_outcome(leaf), []).append(leaf)
    sizes = {name: sum(leaf.bytes for leaf in leaves) for name, leaves in groups.items()}
    rows = tuple(
        (
            name,
            Quantity("parameters", len(groups[name])),
            aliasing.size("bytes", groups[name]),
        )
        for name in sorted(groups, key=lambda name: (name != _ALIASED, -sizes[name], name))
    )
    return Table(
        "totals",
        "Totals, on one device",
        (Column("outcome"), Column("parameters", Unit.COUNT), Column("bytes", Unit.BYTES)),
        rows,
    )


def _without_leaf(session: Session) -> Iterator[tuple[str, int, str]]:
    """Parameters that no argument stands behind: constants that JAX hoisted, and tokens."""
    known = session.get(Signature).by_parameter()
    closed_over = session.find(ClosedOver)
    hoisted = closed_over.by_parameter if closed_over is not None else {}
    for number, slot in enumerate(parameter_slots(session.get(Module))):
        if number not in known:
            array = hoisted.get(number)
            name = f"parameter {number}"
            why = "no argument of the step: a token or a constant that JAX hoisted"
            if array is not None:
                name = ", ".join(array.names) or name
                why = "a closed-over array that JAX hoisted into an argument"
            yield name, slot.shape.bytes, why


def _parameters(aliasing: Aliasing, others: Sequence[tuple[str, int, str]], top: int) -> Table:
    order = sorted(
        aliasing.leaves, key=lambda leaf: (not _telling(leaf), leaf.aliased, -leaf.bytes)
    )
    rows: list[tuple[str | Quantity, ...]] = [
        (
            leaf.leaf.path,
            leaf.leaf.role.value,
            aliasing.size("bytes", [leaf]),
            _DONATED[leaf.leaf.donated],
            _fate(leaf),
            _result(leaf) if leaf.alias is not None else "-",
        )
        for leaf in order
    ]
    rows += [
        (name, "other", Quantity("bytes", size, Unit.BYTES), "no", why, "-")
        for name, size, why in others
    ]
    shown = rows[:top] if top else rows
    left = len(rows) - len(shown)
    return Table(
        "parameters",
        "Parameters, those not aliased first",
        (
            Column("path", text=Text.PATH),
            Column("role", spare=True),
            Column("bytes", Unit.BYTES),
            Column("donated"),
            Column("becomes, or why not"),
            Column("result", text=Text.PATH, spare=True),
        ),
        tuple(shown),
        f"and {left} more; --top 0 lists all" if left else "",
    )


_DONATED = {True: "yes", False: "no", None: "?"}


def _telling(leaf: LeafAliasing) -> bool:
    """Whether there is a reason to read: a leaf that could have been aliased and is not."""
    return leaf.reason is not None and leaf.reason is not Reason.FORWARDED


def _fate(leaf: LeafAliasing) -> str:
    if leaf.alias is not None:
        result = _result(leaf)
        if ends_alike(result, leaf.leaf.path):
            result = "its new value"
        kind = leaf.alias.kind.removesuffix("-alias")
        if leaf.displaced and leaf.partner is not None:
            return f"{result} ({kind}), not its new value {leaf.partner.path}"
        return f"{result} ({kind})"
    if leaf.reason is None:
        return "not donated" if leaf.leaf.donated is False else "not aliased"
    return f"{leaf.reason.value}: {leaf.detail}"


def _result(leaf: LeafAliasing) -> str:
    """Path of the result that has the leaf's buffer, or its number where paths are unknown."""
    if leaf.output is not None and leaf.output.path:
        return leaf.output.path
    index = leaf.alias.output_index if leaf.alias is not None else ()
    return f"result {'.'.join(map(str, index)) or '0'}"


def _copies(copies: Sequence[AliasCopy], top: int) -> Table:
    shown = copies[:top] if top else copies
    rows = []
    for copy in shown:
        exact = copy.times.exact is not None
        moved = Quantity(
            "bytes copied",
            copy.bytes * copy.times.nominal,
            Unit.BYTES,
            Basis.EXACT if exact else Basis.MODELLED,
            None if exact else _UNKNOWN_COPIES,
        )
        forced_by = ", ".join(copy.forced_by_names())
        rows.append((moved, copy.leaf.path, copy.instruction.name, forced_by or "-", copy.why))
    left = len(copies) - len(rows)
    return Table(
        "copies",
        "Whole copies of aliased arguments",
        (
            Column("copied", Unit.BYTES),
            Column("path", text=Text.PATH),
            Column("copy", text=Text.NAME, spare=True),
            Column("forced by", text=Text.NAME),
            Column("why"),
        ),
        tuple(rows),
        f"and {left} more; --top 0 lists all" if left else "",
    )


def _missed(missed: Sequence[MissedDonation], top: int) -> Table:
    shown = missed[:top] if top else missed
    left = len(missed) - len(shown)
    return Table(
        "missed",
        "Results that could have had an argument's buffer",
        (
            Column("bytes", Unit.BYTES),
            Column("result", text=Text.PATH),
            Column("argument", text=Text.PATH),
            Column("how known"),
        ),
        tuple(
            (
                Quantity("bytes", one.bytes, Unit.BYTES),
                one.output.path or "the result",
                one.leaf.leaf.path,
                "its new value, by path" if one.updated else "same shape, dtype and layout",
            )
            for one in shown
        ),
        f"and {left} more; --top 0 lists all" if left else "",
    )
