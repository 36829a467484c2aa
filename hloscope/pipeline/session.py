"""A session runs each analysis of one subject at most once, and keeps what it gave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, cast

from hloscope.errors import Unavailable
from hloscope.pipeline.analyses import ANALYSES, Analysis, AnalysisRegistry, Need, describe

__all__ = ["AnalysisCycleError", "AnalysisFailedError", "Session", "Subject"]

T = TypeVar("T")

Progress = Callable[[str, float | None], None]
Dump = Callable[[type, object], None]


class Subject(Protocol):
    """What is looked at: it brings the objects that analyses start from."""

    def inputs(self) -> Mapping[type, object]:
        """Objects by their type; an :class:`Unavailable` says why one is missing."""


class AnalysisCycleError(Exception):
    """Analyses need each other in a circle, so none can run first."""


class AnalysisFailedError(Exception):
    """An analysis raised something that is not :class:`Unavailable`.

    Attributes:
        analysis: Name of the analysis.
        error: What it raised.
    """

    def __init__(self, analysis: str, error: Exception) -> None:
        super().__init__(f"{analysis}: {type(error).__name__}: {error}")
        self.analysis = analysis
        self.error = error


class Session:
    """Gives analyses of one subject, each computed on first use.

    Args:
        subject: What is looked at.
        analyses: Where to find what gives a type; hloscope's own by default.
        given: Objects by type that stand in for what the subject brings or an
            analysis would give, for example other limits.
        progress: Called with an analysis' name and ``None`` when it starts, and
            with its name and seconds when it ends, however it ends.
        dump: Called with the type and the result of every analysis that ran.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        analyses: AnalysisRegistry = ANALYSES,
        given: Mapping[type, object] | None = None,
        progress: Progress | None = None,
        dump: Dump | None = None,
    ) -> None:
        self.subject = subject
        self._analyses = analyses
        self._results: dict[type, object] = {**subject.inputs(), **(given or {})}
        self._running: list[type] = []
        self._seconds: dict[str, float] = {}
        self._progress = progress
        self._dump = dump

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds that each analysis took by itself, without what it needed."""
        return dict(self._seconds)

    def get(self, wanted: type[T]) -> T:
        """The object of that type, computed if need be.

        Raises:
            Unavailable: The subject does not bring what this needs; the reason
                is that of the input that is missing.
            AnalysisFailedError: An analysis on the way raised; kept, and raised
                again for whoever asks next.
            AnalysisCycleError: What gives ``wanted`` needs ``wanted``.
        """
        if wanted in self._running:
            names = [t.__name__ for t in (*self._running[self._running.index(wanted) :], wanted)]
            raise AnalysisCycleError("analyses need each other: " + " -> ".join(names))
        if wanted not in self._results:
            self._results[wanted] = self._attempt(wanted)
        result = self._results[wanted]
        if isinstance(result, Unavailable | AnalysisFailedError):
            raise result.with_traceback(None)
        return cast("T", result)

    def find(self, wanted: type[T]) -> T | None:
        """The object of that type, or ``None`` where the subject does not bring what it needs.

        Raises:
            AnalysisFailedError: As for :meth:`get`.
            AnalysisCycleError: As for :meth:`get`.
        """
        try:
            return self.get(wanted)
        except Unavailable:
            return None

    def arguments(self, needs: tuple[Need, ...]) -> dict[str, Any]:
        """Values for the parameters of an analysis or a rule, by name.

        Raises:
            Unavailable: One that is not optional is unavailable.
            AnalysisFailedError: As for :meth:`get`.
            AnalysisCycleError: As for :meth:`get`.
        """
        values: dict[str, Any] = {}
        for need in needs:
            try:
                values[need.name] = self.get(need.type)
            except Unavailable:
                if not need.optional:
                    raise
                values[need.name] = None
        return values

    def _attempt(self, wanted: type) -> object:
        provider = self._analyses.provider(wanted)
        if provider is None:
            return Unavailable(f"no {describe(wanted)} given")
        self._running.append(wanted)
        try:
            arguments = self.arguments(provider.needs)
        except (Unavailable, AnalysisFailedError) as missing:
            return missing
        finally:
            self._running.pop()
        return self._run(provider, arguments)

    def _run(self, provider: Analysis, arguments: dict[str, Any]) -> object:
        if self._progress is not None:
            self._progress(provider.name, None)
        started = time.perf_counter()
        try:
            result = provider.function(**arguments)
        except Unavailable as missing:
            return missing
        except Exception as error:
            return AnalysisFailedError(provider.name, error)
        finally:
            self._seconds[provider.name] = time.perf_counter() - started
            if self._progress is not None:
                self._progress(provider.name, self._seconds[provider.name])
        if self._dump is not None:
            self._dump(provider.gives, result)
        return cast("object", result)
