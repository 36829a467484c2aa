"""The audit: runs every rule over one subject and gives nine verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hloscope.errors import HloscopeError, Unavailable
from hloscope.pipeline.config import DEFAULT, Configuration
from hloscope.pipeline.findings import (
    Category,
    Finding,
    Quantity,
    Report,
    Severity,
    Status,
    Suppressed,
    Trust,
    Unit,
    Verdict,
)
from hloscope.pipeline.rules import RULES, Rule, call
from hloscope.pipeline.session import AnalysisCycleError, AnalysisFailedError, Session, Subject

__all__ = [
    "AuditSubject",
    "audit",
    "plural",
    "run_rule",
    "sort_findings",
    "suppression_notes",
    "trust_of",
]

NO_RULE = "no rule for this yet"
NOT_SELECTED = "not selected by the configuration"


class AuditSubject(Subject, Protocol):
    """A subject that can stand at the head of a report."""

    @property
    def name(self) -> str:
        """What is looked at, in the user's words."""

    def header(self) -> Mapping[str, str | Quantity]:
        """Ordered facts: target, devices, versions, seconds of each phase."""


@dataclass(slots=True)
class Outcome:
    """What one rule had to say: its findings, or why it could not look."""

    rule: Rule
    findings: tuple[Finding, ...] = ()
    unavailable: str | None = None
    failure: str | None = None
    suppressed: tuple[Suppressed, ...] = ()

    @property
    def looked(self) -> bool:
        """Whether the rule ran to its end."""
        return self.unavailable is None and self.failure is None


@dataclass(slots=True)
class _Class:
    """The outcomes of one class' rules."""

    category: Category
    outcomes: list[Outcome] = field(default_factory=list)

    def verdict(self) -> Verdict:
        """``found`` or ``none found`` from the rules that looked; else why none could."""
        looked = tuple(outcome.rule.code for outcome in self.outcomes if outcome.looked)
        reason = self._reason(partly=bool(looked))
        if not looked:
            return Verdict(self.category, Status.NOT_CHECKED, reason or NO_RULE)
        found = any(outcome.findings for outcome in self.outcomes)
        status = Status.FOUND if found else Status.NONE_FOUND
        return Verdict(self.category, status, reason, looked)

    def _reason(self, *, partly: bool) -> str:
        """Each reason once, with the codes that it holds for where some rules did look."""
        codes: dict[str, list[str]] = {}
        parts = []
        for outcome in self.outcomes:
            if outcome.failure is not None:
                parts.append(f"{outcome.rule.code} failed: {outcome.failure}")
            elif outcome.unavailable is not None:
                codes.setdefault(outcome.unavailable, []).append(outcome.rule.code)
        for reason, having in codes.items():
            parts.append(f"{', '.join(having)} not checked: {reason}" if partly else reason)
        left_out = sum(len(outcome.suppressed) for outcome in self.outcomes)
        if left_out:
            parts.append(f"{left_out} suppressed by the configuration")
        return "; ".join(parts)


def audit(
    session: Session,
    subject: AuditSubject,
    rules: Mapping[str, Rule] = RULES,
    config: Configuration | None = None,
) -> Report:
    """Run every rule and say of each of the nine classes what was found.

    A rule that raises does not cost the others: its class says so, and the
    report lists it under ``failures``.

    Args:
        session: Gives the rules what they need.
        subject: Gives the report its head.
        rules: Rules by code; hloscope's own by default.
        config: Which of them to run, and which findings to leave out. Its
            thresholds hold where the session was given them.

    Returns:
        A report with nine verdicts in the order of the classes.
    """
    classes = {category: _Class(category) for category in Category}
    for found in rules.values():
        classes[found.category].outcomes.append(run_rule(session, found, config))
    outcomes = [outcome for one in classes.values() for outcome in one.outcomes]
    findings = sort_findings([finding for o in outcomes for finding in o.findings])
    verdicts = tuple(one.verdict() for one in classes.values())
    trust, trust_note = trust_of(session)
    notes = suppression_notes(outcomes, config)
    return Report(
        command="audit",
        subject=subject.name,
        header=subject.header(),
        verdicts=verdicts,
        findings=findings,
        trust=trust,
        summary=_summary(findings, verdicts),
        notes=(*notes, trust_note) if trust_note else notes,
        failures=tuple(f"{o.rule.code} failed: {o.failure}" for o in outcomes if o.failure),
        suppressed=tuple(one for outcome in outcomes for one in outcome.suppressed),
    )


def suppression_notes(outcomes: Sequence[Outcome], config: Configuration | None) -> tuple[str, ...]:
    """What the configuration left out of the outcomes, and which of its entries match nothing."""
    left_out = [one for outcome in outcomes for one in outcome.suppressed]
    looked = [outcome.rule.code for outcome in outcomes if outcome.looked]
    return (config or DEFAULT).notes(left_out, looked)


def run_rule(session: Session, found: Rule, config: Configuration | None = None) -> Outcome:
    """Run one rule; whatever it raises becomes part of the outcome."""
    config = config or DEFAULT
    if not config.selects(found.code):
        return Outcome(found, unavailable=NOT_SELECTED)
    try:
        arguments = session.arguments(found.needs)
        arguments |= {need.name: config for need in found.needs if need.type is Configuration}
        kept, suppressed = config.split(call(found, arguments))
        return Outcome(found, kept, suppressed=suppressed)
    except Unavailable as missing:
        return Outcome(found, unavailable=missing.message)
    except (AnalysisFailedError, AnalysisCycleError) as error:
        return Outcome(found, failure=str(error))
    except HloscopeError as error:
        return Outcome(found, failure=f"{type(error).__name__}: {error.message}")
    except Exception as error:
        return Outcome(found, failure=f"{type(error).__name__}: {error}")


def sort_findings(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Worst severity first, most costly first within it, then by code and place.

    Costs in different units do not compare; seconds come before FLOPs, FLOPs
    before bytes, and findings without a cost come last.
    """
    return tuple(sorted(findings, key=_order))


_UNITS = [Unit.SECONDS, Unit.FLOPS, Unit.BYTES, Unit.COUNT, Unit.RATIO, Unit.SHARE]


def _order(finding: Finding) -> tuple[object, ...]:
    cost, site = finding.cost, finding.site
    known = cost is not None and cost.value is not None
    return (
        -finding.severity.rank,
        _UNITS.index(cost.unit) if cost is not None else len(_UNITS),
        not known,
        -cost.value if cost is not None and cost.value is not None else 0,
        finding.code,
        site.file or "",
        site.line or 0,
        site.leaf or "",
        site.computation or "",
        site.instruction or "",
        finding.message,
    )


def trust_of(session: Session) -> tuple[Trust | None, str]:
    """The trust line, or why there is none."""
    try:
        return session.get(Trust), ""
    except Unavailable as missing:
        return None, f"no trust line: {missing.message}"
    except (AnalysisFailedError, AnalysisCycleError) as error:
        return None, f"no trust line: {error}"


def _summary(findings: Sequence[Finding], verdicts: Sequence[Verdict]) -> str:
    status = Counter(verdict.status for verdict in verdicts)
    unchecked = status[Status.NOT_CHECKED]
    looked = len(verdicts) - unchecked
    tail = f"{unchecked} not checked" if unchecked else "all nine checked"
    if not looked:
        return "Nothing could be checked."
    if not findings:
        return f"No findings in the {looked} of 9 classes checked; {tail}."
    by_severity = Counter(finding.severity for finding in findings)
    counts = ", ".join(
        plural(by_severity[severity], severity.value)
        for severity in reversed(Severity)
        if by_severity[severity]
    )
    return f"{counts} in {status[Status.FOUND]} of {looked} classes checked; {tail}."


def plural(count: int, noun: str) -> str:
    """``1 note``, ``2 notes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
