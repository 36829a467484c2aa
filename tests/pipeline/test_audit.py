# What a function asks for by type is what these tests are about.
# ruff: noqa: ARG001
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hloscope.errors import InputError, Unavailable
from hloscope.pipeline.analyses import AnalysisRegistry
from hloscope.pipeline.audit import audit, sort_findings
from hloscope.pipeline.checks import Check, check, find_check
from hloscope.pipeline.findings import (
    Basis,
    Category,
    Finding,
    Quantity,
    Severity,
    Site,
    Status,
    Trust,
    Unit,
)
from hloscope.pipeline.rules import SECTIONS, RuleRegistry
from hloscope.pipeline.session import Session

DOC = "\n".join(f"{title}:\n    Text." for title in SECTIONS)


@dataclass(frozen=True)
class Program:
    literals: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    events: int


class Subject:
    name = "step.hlo"

    def __init__(self, *inputs):
        self._inputs = inputs

    def inputs(self):
        return {
            Trace: Unavailable("no trace given"),
            **{type(one): one for one in self._inputs},
        }

    def header(self):
        return {"target": "cpu"}


def finding(code="HS301", *, severity=Severity.WARNING, cost=None, unit=Unit.BYTES, line=None):
    category = next(c for c in Category if c.number == int(code[2]))
    quantity = None if cost is None else Quantity("size", cost, unit)
    site = Site(file="train.py" if line else None, line=line)
    return Finding(code, "a-rule", category, severity, "It costs.", site, cost=quantity)


@pytest.fixture
def rules():
    return RuleRegistry()


def add(rules, code, function, name=None):
    function.__doc__ = DOC
    category = next(c for c in Category if c.number == int(code[2]))
    rules.register(code, name or f"rule-{code.lower()}", category)(function)


def run(subject, rules, analyses=None):
    session = Session(subject, analyses=analyses or AnalysisRegistry())
    return audit(session, subject, rules)


def verdict_of(report, number):
    return next(v for v in report.verdicts if v.category.number == number)


def literals(program: Program) -> Iterator[Finding]:
    for size in program.literals:
        yield finding("HS301", cost=size)


def events(trace: Trace) -> Iterator[Finding]:
    yield finding("HS601", cost=float(trace.events), unit=Unit.SECONDS)


def test_nine_verdicts_always_come_in_the_order_of_the_classes(rules):
    report = run(Subject(), rules)
    assert [v.category for v in report.verdicts] == list(Category)
    assert {v.status for v in report.verdicts} == {Status.NOT_CHECKED}
    assert {v.reason for v in report.verdicts} == {"no rule for this yet"}
    assert report.summary == "Nothing could be checked."


def test_a_class_is_found_or_none_found_by_the_rules_that_looked(rules):
    add(rules, "HS301", literals)
    found = run(Subject(Program((5, 9))), rules)
    assert verdict_of(found, 3).status is Status.FOUND
    assert verdict_of(found, 3).rules == ("HS301",)
    assert [f.cost.value for f in found.findings] == [9, 5]
    clean = run(Subject(Program(())), rules)
    assert verdict_of(clean, 3).status is Status.NONE_FOUND
    assert clean.summary == "No findings in the 1 of 9 classes checked; 8 not checked."


def test_a_rule_without_its_input_says_why_it_did_not_look(rules):
    add(rules, "HS601", events)
    report = run(Subject(Program(())), rules)
    assert verdict_of(report, 6).status is Status.NOT_CHECKED
    assert verdict_of(report, 6).reason == "no trace given"
    assert verdict_of(report, 6).rules == ()


def test_a_class_with_some_rules_unavailable_lists_them(rules):
    def traced_literals(trace: Trace) -> Iterator[Finding]:
        yield finding("HS302")

    add(rules, "HS301", literals)
    add(rules, "HS302", traced_literals)
    report = run(Subject(Program((1,))), rules)
    assert verdict_of(report, 3).status is Status.FOUND
    assert verdict_of(report, 3).reason == "HS302 not checked: no trace given"
    assert verdict_of(report, 3).rules == ("HS301",)


def test_a_rule_may_find_in_its_body_that_it_cannot_look(rules):
    def late(program: Program) -> Iterator[Finding]:
        yield finding("HS301")
        raise Unavailable("the literal is elided")

    add(rules, "HS301", late)
    report = run(Subject(Program(())), rules)
    assert verdict_of(report, 3).status is Status.NOT_CHECKED
    assert report.findings == ()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad window"), "ValueError: bad window"),
        (InputError("bad config", place="x.hlo:3"), "InputError: bad config"),
    ],
)
def test_a_rule_that_fails_does_not_cost_the_others(rules, error, said):
    def broken(program: Program) -> Iterator[Finding]:
        raise error
        yield

    add(rules, "HS301", broken)
    add(rules, "HS302", literals_as("HS302"))
    add(rules, "HS401", literals_as("HS401"))
    report = run(Subject(Program((1,))), rules)
    assert verdict_of(report, 3).status is Status.FOUND
    assert verdict_of(report, 3).reason == f"HS301 failed: {said}"
    assert verdict_of(report, 4).status is Status.FOUND
    assert report.failures == (f"HS301 failed: {said}",)


def literals_as(code):
    def function(program: Program) -> Iterator[Finding]:
        for size in program.literals:
            yield finding(code, cost=size)

    return function


def test_a_rule_alone_in_its_class_that_fails_leaves_it_not_checked(rules):
    def broken(program: Program) -> Iterator[Finding]:
        raise ValueError("bad window")
        yield

    add(rules, "HS301", broken)
    verdict = verdict_of(run(Subject(Program(())), rules), 3)
    assert verdict.status is Status.NOT_CHECKED
    assert verdict.reason == "HS301 failed: ValueError: bad window"


def test_a_failing_analysis_is_named_by_the_rules_that_need_it(rules):
    analyses = AnalysisRegistry()

    @analyses.register
    def read_trace(program: Program) -> Weights:
        raise RuntimeError("no")

    def heavy(weights: Weights) -> Iterator[Finding]:
        yield finding("HS301")

    add(rules, "HS301", heavy)
    report = run(Subject(Program(())), rules, analyses)
    assert report.failures == ("HS301 failed: read_trace: RuntimeError: no",)


@dataclass(frozen=True)
class Weights:
    total: int


def test_a_finding_under_a_foreign_code_is_a_failure_of_its_rule(rules):
    add(rules, "HS301", literals_as("HS302"))
    report = run(Subject(Program((1,))), rules)
    assert report.findings == ()
    assert "yielded a finding as HS302" in report.failures[0]


def test_a_rule_whose_types_cannot_be_resolved_is_a_failure_of_its_own(rules):
    def vague(items: list[int]) -> Iterator[Finding]:
        yield from ()

    add(rules, "HS301", vague)
    assert "TypeError" in run(Subject(), rules).failures[0]


def test_the_trust_line_comes_from_its_analysis(rules):
    analyses = AnalysisRegistry()

    @analyses.register
    def trust(program: Program) -> Trust:
        return Trust(len(program.literals), 0, 0, 0, 0)

    assert run(Subject(Program((1, 2))), rules, analyses).trust == Trust(2, 0, 0, 0, 0)
    without = run(Subject(), rules, analyses)
    assert without.trust is None
    assert without.notes == ("no trust line: no program given",)


def test_findings_are_sorted_by_severity_then_cost_then_place():
    unknown = Finding(
        "HS301",
        "a-rule",
        Category.BAKED_CONSTANTS,
        Severity.NOTE,
        "It costs.",
        Site(),
        cost=Quantity("size", None, Unit.BYTES, Basis.UNKNOWN),
    )
    wanted = [
        finding(severity=Severity.ERROR),
        finding(severity=Severity.WARNING, cost=0.5, unit=Unit.SECONDS),
        finding(severity=Severity.WARNING, cost=7),
        finding(severity=Severity.WARNING, cost=3, line=4),
        finding(severity=Severity.WARNING, cost=3, line=9),
        finding(severity=Severity.NOTE, cost=10**9),
        unknown,
        finding(severity=Severity.NOTE),
    ]
    assert list(sort_findings(wanted[::-1])) == wanted


def test_the_summary_counts_findings_by_severity(rules):
    def mixed(program: Program) -> Iterator[Finding]:
        yield finding("HS301", severity=Severity.NOTE)
        yield finding("HS301", severity=Severity.ERROR)
        yield finding("HS301", severity=Severity.NOTE)

    add(rules, "HS301", mixed)
    report = run(Subject(Program(())), rules)
    assert report.summary == "1 error, 2 notes in 1 of 1 classes checked; 8 not checked."


DONATION = Check("literals", ("HS301",), "No literal is large")


def checked(subject, rules):
    session = Session(subject, analyses=AnalysisRegistry())
    return check(session, subject, DONATION, rules)


def test_a_check_passes_when_its_rules_find_nothing(rules):
    add(rules, "HS301", literals)
    report = checked(Subject(Program(())), rules)
    assert report.passed is True
    assert report.summary == "No literal is large."
    assert report.verdicts == ()


def test_a_check_fails_with_the_findings(rules):
    add(rules, "HS301", literals)
    report = checked(Subject(Program((1, 2))), rules)
    assert report.passed is False
    assert len(report.findings) == 2
    assert report.summary == "Does not hold: no literal is large (2 findings)."


def test_a_check_that_cannot_look_says_nothing_either_way(rules):
    add(rules, "HS301", literals)
    with pytest.raises(Unavailable, match="cannot tell: no program given"):
        checked(Subject(), rules)


def test_a_check_whose_rule_fails_does_not_pass(rules):
    def broken(program: Program) -> Iterator[Finding]:
        raise ValueError("bad")
        yield

    add(rules, "HS301", broken)
    report = checked(Subject(Program(())), rules)
    assert report.passed is False
    assert report.failures == ("HS301 failed: ValueError: bad",)


def test_an_unknown_check_names_the_nearest():
    with pytest.raises(Exception, match="there is no check 'donations'") as raised:
        find_check("donations")
    assert raised.value.hint == "Try one of: donation."


def test_a_quantity_is_a_finite_number_or_says_that_it_is_unknown():
    with pytest.raises(ValueError, match="exactly when its basis is unknown"):
        Quantity("size", None)
    with pytest.raises(ValueError, match="exactly when its basis is unknown"):
        Quantity("size", 0, basis=Basis.UNKNOWN)
    with pytest.raises(ValueError, match="is no number"):
        Quantity("rate", float("inf"))
