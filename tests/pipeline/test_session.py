# What a function asks for by type is what these tests are about.
# ruff: noqa: ARG001
from dataclasses import dataclass

import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.analyses import AnalysisRegistry, describe
from hloscope.pipeline.session import AnalysisCycleError, AnalysisFailedError, Session


@dataclass(frozen=True)
class Program:
    length: int


@dataclass(frozen=True)
class Weights:
    total: int


@dataclass(frozen=True)
class LoopCounts:
    total: int


@dataclass(frozen=True)
class Sum:
    value: int


class Subject:
    def __init__(self, *inputs):
        self._inputs = inputs

    def inputs(self):
        return {type(one): one for one in self._inputs}


class Without(Subject):
    """Brings a program, and a reason for having no weights."""

    def inputs(self):
        return {**super().inputs(), Weights: Unavailable("the dump holds no weights")}


@pytest.fixture
def registry():
    return AnalysisRegistry()


def test_an_analysis_gets_what_its_parameters_name_by_type(registry):
    @registry.register
    def loops(program: Program) -> LoopCounts:
        return LoopCounts(program.length + 1)

    @registry.register
    def total(counts: LoopCounts, program: Program) -> Sum:
        return Sum(counts.total * 10 + program.length)

    assert Session(Subject(Program(3)), analyses=registry).get(Sum) == Sum(43)


def test_each_analysis_runs_once_for_all_who_ask(registry):
    calls = []

    @registry.register
    def loops(program: Program) -> LoopCounts:
        calls.append(program)
        return LoopCounts(1)

    @registry.register
    def total(counts: LoopCounts) -> Sum:
        return Sum(counts.total)

    session = Session(Subject(Program(3)), analyses=registry)
    session.get(Sum)
    session.get(LoopCounts)
    session.get(Sum)
    assert calls == [Program(3)]


def test_a_missing_input_is_unavailable_with_the_subjects_reason(registry):
    @registry.register
    def total(weights: Weights) -> Sum:
        return Sum(weights.total)

    session = Session(Without(Program(1)), analyses=registry)
    with pytest.raises(Unavailable, match="the dump holds no weights"):
        session.get(Sum)


def test_what_is_only_looked_for_is_none_where_it_is_missing_and_still_fails_where_it_fails(
    registry,
):
    @registry.register
    def total(weights: Weights) -> Sum:
        return Sum(weights.total)

    @registry.register
    def broken(program: Program) -> LoopCounts:
        raise ZeroDivisionError

    session = Session(Without(Program(1)), analyses=registry)
    assert session.find(Sum) is None
    assert session.find(Program) == Program(1)
    with pytest.raises(AnalysisFailedError):
        session.find(LoopCounts)


def test_what_nobody_gives_is_unavailable_by_its_name_in_words(registry):
    with pytest.raises(Unavailable, match="no loop counts given"):
        Session(Subject(), analyses=registry).get(LoopCounts)
    assert describe(LoopCounts) == "loop counts"


def test_an_analysis_that_raises_unavailable_is_asked_only_once(registry):
    calls = []

    @registry.register
    def loops(program: Program) -> LoopCounts:
        calls.append(program)
        raise Unavailable("no loop here")

    session = Session(Subject(Program(1)), analyses=registry)
    for _ in range(2):
        with pytest.raises(Unavailable, match="no loop here"):
            session.get(LoopCounts)
    assert len(calls) == 1


def test_an_analysis_that_fails_is_kept_and_named(registry):
    calls = []

    @registry.register
    def loops(program: Program) -> LoopCounts:
        calls.append(program)
        raise KeyError("body")

    @registry.register
    def total(counts: LoopCounts) -> Sum:
        return Sum(counts.total)

    session = Session(Subject(Program(1)), analyses=registry)
    for wanted in (Sum, LoopCounts):
        with pytest.raises(AnalysisFailedError, match="loops: KeyError: 'body'"):
            session.get(wanted)
    assert len(calls) == 1


def test_an_optional_need_is_none_where_it_is_unavailable(registry):
    @registry.register
    def total(program: Program, weights: Weights | None) -> Sum:
        return Sum(program.length if weights is None else weights.total)

    assert Session(Without(Program(4)), analyses=registry).get(Sum) == Sum(4)
    both = Subject(Program(4), Weights(9))
    assert Session(both, analyses=registry).get(Sum) == Sum(9)


def test_an_optional_need_that_fails_is_not_hidden(registry):
    @registry.register
    def loops(program: Program) -> LoopCounts:
        raise ZeroDivisionError

    @registry.register
    def total(counts: LoopCounts | None) -> Sum:
        return Sum(0)

    with pytest.raises(AnalysisFailedError):
        Session(Subject(Program(1)), analyses=registry).get(Sum)


def test_a_circle_of_needs_is_named(registry):
    @registry.register
    def loops(total: Sum) -> LoopCounts:
        return LoopCounts(total.value)

    @registry.register
    def total(counts: LoopCounts) -> Sum:
        return Sum(counts.total)

    with pytest.raises(AnalysisCycleError, match="Sum -> LoopCounts -> Sum"):
        Session(Subject(), analyses=registry).get(Sum)


def test_given_objects_stand_in_for_what_would_be_computed(registry):
    @registry.register
    def total(program: Program) -> Sum:
        return Sum(program.length)

    session = Session(Subject(Program(1)), analyses=registry, given={Sum: Sum(7)})
    assert session.get(Sum) == Sum(7)


def test_progress_and_dumps_come_from_the_session_in_order(registry):
    @registry.register
    def loops(program: Program) -> LoopCounts:
        return LoopCounts(program.length)

    @registry.register
    def total(counts: LoopCounts) -> Sum:
        return Sum(counts.total)

    events = []
    session = Session(
        Subject(Program(2)),
        analyses=registry,
        progress=lambda name, seconds: events.append((name, seconds is None)),
        dump=lambda kind, value: events.append((kind, value)),
    )
    session.get(Sum)
    assert events == [
        ("loops", True),
        ("loops", False),
        (LoopCounts, LoopCounts(2)),
        ("total", True),
        ("total", False),
        (Sum, Sum(2)),
    ]
    assert set(session.seconds) == {"loops", "total"}
    assert all(seconds >= 0 for seconds in session.seconds.values())


def test_two_analyses_of_one_type_are_refused(registry):
    @registry.register
    def first(program: Program) -> Sum:
        return Sum(1)

    @registry.register
    def second(program: Program) -> Sum:
        return Sum(2)

    with pytest.raises(TypeError, match="both give Sum"):
        registry.provider(Sum)


def test_an_analysis_without_types_is_refused_by_name(registry):
    @registry.register
    def untyped(program) -> Sum:
        return Sum(1)

    with pytest.raises(TypeError, match="untyped: parameter program needs a type annotation"):
        registry.provider(Sum)


def test_an_analysis_that_gives_nothing_is_refused(registry):
    @registry.register
    def silent(program: Program) -> None:
        return None

    with pytest.raises(TypeError, match="must be the class that it gives"):
        registry.provider(Sum)


def test_a_need_that_is_no_class_is_refused(registry):
    @registry.register
    def vague(items: list[int]) -> Sum:
        return Sum(sum(items))

    with pytest.raises(TypeError, match="name one class"):
        registry.provider(Sum)
