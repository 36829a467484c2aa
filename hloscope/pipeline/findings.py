"""What an audit says: quantities with their basis, findings, verdicts, the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

__all__ = [
    "Basis",
    "Category",
    "Column",
    "Finding",
    "Quantity",
    "Report",
    "Severity",
    "Site",
    "Status",
    "Suppressed",
    "Table",
    "Text",
    "Trust",
    "Unit",
    "Verdict",
]


class Basis(StrEnum):
    """How a number is known."""

    EXACT = "exact"
    MODELLED = "modelled"
    BOUNDED = "bounded"
    UNKNOWN = "unknown"


class Unit(StrEnum):
    """What a number counts; renderers choose the prefix."""

    BYTES = "B"
    FLOPS = "FLOP"
    SECONDS = "s"
    COUNT = ""
    RATIO = "x"
    SHARE = "%"  # 0..1; rendered times a hundred


class Severity(StrEnum):
    """How much a finding matters, least first."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for a note, 1 for a warning, 2 for an error."""
        return list(Severity).index(self)


class Category(Enum):
    """The nine classes of antipattern, in the order in which reports list them."""

    SYNC = (1, "sync in hot paths")
    RECOMPILATION = (2, "recompilation")
    BAKED_CONSTANTS = (3, "baked constants")
    DTYPE_CHURN = (4, "dtype churn")
    REDUNDANT_WORK = (5, "redundant work")
    DATA_PATH = (6, "data path")
    SHARDING = (7, "sharding and donation")
    COMPILE_TIME = (8, "compile time")
    MEMORY = (9, "memory")

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title


class Status(StrEnum):
    """What the audit can say of one class."""

    FOUND = "found"
    NONE_FOUND = "none found"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A named number that says how it is known.

    ``value`` is ``None`` exactly when ``basis`` is ``UNKNOWN``: an unknown is
    never written as zero. ``model`` names the model of a modelled value.
    """

    name: str
    value: int | float | None
    unit: Unit = Unit.COUNT
    basis: Basis = Basis.EXACT
    model: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.basis is Basis.UNKNOWN):
            raise ValueError(f"{self.name}: a value is None exactly when its basis is unknown")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"{self.name}: {self.value} is no number; say that it is unknown")


@dataclass(frozen=True, slots=True)
class Site:
    """Where a finding is: in the HLO, in Python, in the pytree."""

    computation: str | None = None
    instruction: str | None = None
    op_name: str | None = None
    file: str | None = None
    line: int | None = None
    leaf: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that costs something, with its evidence and its remedy.

    Attributes:
        code: Stable code of the rule, for example ``HS301``.
        name: Name of the rule, for example ``large-constant``.
        category: The class it belongs to.
        severity: How much it matters here.
        message: One sentence that names what was found, without numbers' units
            spelled by hand (evidence carries those).
        site: Where.
        evidence: Named quantities.
        cost: What is at stake (bytes, FLOPs, seconds); sorts the findings.
        fix: What to do, as an imperative sentence.
        notes: Further short facts, for example the reason found.
    """

    code: str
    name: str
    category: Category
    severity: Severity
    message: str
    site: Site
    evidence: tuple[Quantity, ...] = ()
    cost: Quantity | None = None
    fix: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Suppressed:
    """A finding that the project's configuration leaves out.

    Attributes:
        finding: What was found.
        by: The entry of ``ignore`` that leaves it out, as it is written.
    """

    finding: Finding
    by: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the audit says of one class.

    ``reason`` is empty unless the status is ``not checked`` or only part of the
    rules could look (``partly``); ``rules`` are the codes that did look.
    """

    category: Category
    status: Status
    reason: str = ""
    rules: tuple[str, ...] = ()


class Text(Enum):
    """What the text of a column is, which says how it may be shortened."""

    PLAIN = "plain"
    WORD = "word"  # what one types again, which is never shortened
    NAME = "name"  # of an instruction
    PATH = "path"  # of a pytree leaf, or a scope
    SOURCE = "source"  # file and line
    ARRAY = "array"  # dtype and shape


@dataclass(frozen=True, slots=True)
class Column:
    """A table column.

    Attributes:
        title: Its head.
        unit: Of the numbers in it; ``None`` for text.
        text: What its text is.
        spare: Whether it may be left out where there is no room for it. What is
            left out is still in the JSON document.
        drawn: Whether it is in the table that people see; otherwise it is in the JSON
            document alone, and people are told in another way.
    """

    title: str
    unit: Unit | None = None
    text: Text = Text.PLAIN
    spare: bool = False
    drawn: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text or :class:`Quantity` cells under named columns."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str | Quantity, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trust:
    """How much of the program the numbers account for.

    Attributes:
        instructions: Instructions in the module.
        custom_calls: Custom calls that were met.
        custom_calls_understood: Those whose cost or purpose is known.
        loops: While loops that were met.
        loops_understood: Those whose trip count is known.
        notes: What was not understood, by name and count.
        traced: Share (0..1) of a trace's time that ran instructions of the program;
            ``None`` where no trace was given.
    """

    instructions: int
    custom_calls: int
    custom_calls_understood: int
    loops: int
    loops_understood: int
    notes: tuple[str, ...] = ()
    traced: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run has to say; renderers take this and nothing else.

    Attributes:
        command: ``audit``, ``flops``, ``check donation``...
        subject: What was looked at, in the user's words.
        header: Ordered facts about the program: target, versions, timings.
        verdicts: Nine of them in an audit; none in other commands.
        findings: Most costly first within each severity, worst severity first.
        tables: Further results.
        trust: The trust line.
        summary: The verdict in one sentence, printed first.
        passed: For checks: whether it holds. ``None`` where nothing is gated.
        notes: Further short facts about the run.
        failures: What failed, one sentence each. The rest of
            the report holds; the command exits with 2.
        suppressed: Findings that the configuration leaves out: they gate
            nothing, and the notes name them.
    """

    command: str
    subject: str
    header: Mapping[str, str | Quantity]
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    tables: tuple[Table, ...] = ()
    trust: Trust | None = None
    summary: str = ""
    passed: bool | None = None
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()
