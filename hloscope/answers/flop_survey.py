"""Every architecture in one table: three counts of its FLOPs, and what is left unexplained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hloscope.answers.flop_answers import Answers, ratio
from hloscope.errors import HloscopeError
from hloscope.pipeline.audit import plural
from hloscope.pipeline.findings import Basis, Column, Quantity, Report, Table, Text, Unit
from hloscope.pipeline.session import AnalysisFailedError

__all__ = ["survey_flops"]

_NOTE = (
    "ratio: the HLO's products over XLA's figure. residue: the larger part of the HLO's "
    "products that no reason accounts for, from XLA's figure and from the jaxpr's; `hloscope "
    "flops --arch NAME` gives the reasons. On several devices all are those of one."
)


def survey_flops(
    names: Sequence[str],
    answer: Callable[[str], Answers],
    header: Mapping[str, str | Quantity],
) -> Report:
    """Ask for each architecture in turn; one that fails costs the others nothing.

    Args:
        names: The architectures.
        answer: Captures one and counts it.
        header: Facts that hold for all of them.

    Returns:
        A report whose ``failures`` say which architectures failed, and why.
    """
    rows, failures = [], []
    for name in names:
        try:
            rows.append(_row(name, answer(name)))
        except HloscopeError as error:
            place = f" ({error.place})" if error.place else ""
            failures.append(f"{name}: {error.message}{place}")
            rows.append((name, *_unknown(error.message)))
        except AnalysisFailedError as error:
            failures.append(f"{name}: {error}")
            rows.append((name, *_unknown(str(error))))
    table = Table(
        "archs",
        "FLOPs of one execution",
        (
            Column("arch", text=Text.WORD),
            Column("cost_analysis", Unit.FLOPS),
            Column("HLO", Unit.FLOPS),
            Column("jaxpr", Unit.FLOPS),
            Column("ratio", Unit.RATIO),
            Column("residue", Unit.SHARE),
        ),
        tuple(rows),
        _NOTE,
    )
    counted = len(names) - len(failures)
    summary = f"{plural(counted, 'architecture')} counted"
    summary += f", {len(failures)} failed." if failures else "."
    return Report("flops", "", header, tables=(table,), summary=summary, failures=tuple(failures))


def _row(name: str, answers: Answers) -> tuple[str | Quantity, ...]:
    return (
        name,
        answers.xla,
        answers.ours,
        answers.jaxpr,
        ratio(answers.ours, answers.xla),
        answers.residue,
    )


def _unknown(reason: str) -> tuple[Quantity, ...]:
    units = (Unit.FLOPS, Unit.FLOPS, Unit.FLOPS, Unit.RATIO, Unit.SHARE)
    return tuple(Quantity(f"failed: {reason}", None, unit, Basis.UNKNOWN) for unit in units)
