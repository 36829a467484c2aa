"""Checks for CI: named sets of rules that must find nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches

from hloscope.errors import Unavailable, UsageError
from hloscope.pipeline.audit import (
    AuditSubject,
    plural,
    run_rule,
    sort_findings,
    suppression_notes,
    trust_of,
)
from hloscope.pipeline.config import DEFAULT, Configuration
from hloscope.pipeline.findings import Column, Quantity, Report, Table, Unit
from hloscope.pipeline.rules import RULES, Rule
from hloscope.pipeline.session import Session

__all__ = ["CHECKS", "Check", "DonationCount", "check", "find_check"]


@dataclass(frozen=True, slots=True)
class DonationCount:
    """What the donation check looked at; an analysis of the passes gives it.

    Attributes:
        leaves: Leaves of the training state.
        aliased: Those whose buffer a result takes over.
        bytes: Bytes of all of them, on one device.
    """

    leaves: int
    aliased: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Check:
    """What must hold, and which rules find where it does not.

    Attributes:
        name: As in ``hloscope check NAME``.
        codes: Codes of the rules; one finding of any of them breaks the check.
        holds: What is true when it passes, as a sentence without its full stop.
        counted: Analysis that says how much was looked at.
    """

    name: str
    codes: tuple[str, ...]
    holds: str
    counted: type[DonationCount] | None = None


CHECKS: Mapping[str, Check] = {
    one.name: one
    for one in (
        Check("donation", ("HS701",), "Every state leaf is aliased to a result", DonationCount),
    )
}
"""The checks by name."""


def find_check(name: str) -> Check:
    """The check of that name.

    Raises:
        UsageError: There is none; the hint names the nearest ones.
    """
    if name in CHECKS:
        return CHECKS[name]
    near = get_close_matches(name, CHECKS) or list(CHECKS)
    raise UsageError(f"there is no check {name!r}", hint=f"Try one of: {', '.join(near)}.")


def check(
    session: Session,
    subject: AuditSubject,
    wanted: Check,
    rules: Mapping[str, Rule] = RULES,
    config: Configuration | None = None,
) -> Report:
    """Run the rules of one check.

    Args:
        session: Gives the rules what they need.
        subject: Gives the report its head.
        wanted: The check.
        rules: Rules by code; hloscope's own by default.
        config: Which findings to leave out. The check's rules run, whatever it selects.

    Returns:
        A report whose ``passed`` says whether it holds.

    Raises:
        Unavailable: A rule could not look, so nothing can be said either way.
    """
    config = replace(config or DEFAULT, select=())
    outcomes = [run_rule(session, rules[code], config) for code in wanted.codes]
    for outcome in outcomes:
        if outcome.unavailable is not None:
            raise Unavailable(
                f"cannot tell: {outcome.unavailable}",
                place=f"check {wanted.name}, {outcome.rule.code}",
                hint="Check a step that donates its state or names it in Step(roles=...); "
                "a bare dump may not tell.",
            )
    findings = sort_findings([finding for o in outcomes for finding in o.findings])
    failures = tuple(f"{o.rule.code} failed: {o.failure}" for o in outcomes if o.failure)
    passed = not findings and not failures
    trust, note = trust_of(session)
    summary = wanted.holds + "." if passed else f"Does not hold: {wanted.holds.lower()}"
    if not passed:
        summary += f" ({plural(len(findings), 'finding')})." if findings else "; it failed inside."
    return Report(
        command=f"check {wanted.name}",
        subject=subject.name,
        header=subject.header(),
        findings=findings,
        tables=_counted(session, wanted),
        trust=trust,
        summary=summary,
        passed=passed,
        notes=(*suppression_notes(outcomes, config), *([note] if note else [])),
        failures=failures,
        suppressed=tuple(one for outcome in outcomes for one in outcome.suppressed),
    )


def _counted(session: Session, wanted: Check) -> tuple[Table, ...]:
    """How much the check looked at, so that a pass over nothing cannot look like a pass."""
    if wanted.counted is None:
        return ()
    count = session.get(wanted.counted)
    columns = (Column("state leaves", Unit.COUNT), Column("aliased", Unit.COUNT))
    row = (Quantity("state leaves", count.leaves), Quantity("aliased", count.aliased))
    size = Quantity("bytes", count.bytes, Unit.BYTES)
    return (
        Table("checked", "Looked at", (*columns, Column("bytes", Unit.BYTES)), ((*row, size),)),
    )
