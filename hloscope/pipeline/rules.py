"""Rules: generator functions that yield findings, by stable code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from hloscope.errors import UsageError
from hloscope.pipeline.analyses import Need, analysis, needs_of
from hloscope.pipeline.findings import Category, Finding, Severity

__all__ = ["RULES", "SECTIONS", "Limits", "Rule", "RuleRegistry", "explain", "rule"]

SECTIONS = ("What it does", "Why it costs", "Example", "Use instead")
"""The headings that every rule's docstring has, in this order."""

RuleFunction = TypeVar("RuleFunction", bound=Callable[..., Iterator[Finding]])

_CODE = re.compile(r"HS([1-9])\d\d")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds below which a rule stays silent.

    Attributes:
        constant_bytes: Size of a literal, in bytes, from which it counts as large.
        product_flops_share: Share (0..1) of the program's product FLOPs from
            which a product is worth a finding.
        mixed_flops_share: Share (0..1) of the program's product FLOPs in narrow
            types from which wide products beside them are worth a finding.
        traffic_share: Share (0..1) of the program's memory traffic from which
            bytes moved for nothing are worth a finding.
        layout_bytes: Bytes that one line moves only to lay arrays out another way from
            which it is worth a finding, whatever their share.
        reread_bytes: Bytes that one line's sums read again from which that is worth a
            finding, whatever their share.
        wire_share: Share (0..1) of the bytes that one device sends from which
            bytes sent for nothing are worth a finding.
        reshard_bytes: Bytes that one device sends in all runs of a line to change a
            sharding, from which that is worth a finding.
        exposed_share: Share (0..1) of the step's floor, or of a trace's window, from
            which an exchange that nothing hides is worth a finding.
        float64_bytes: Bytes that one line computes in float64 from which it is
            worth a finding.
        quantized_flops_per_byte: FLOPs of quantized products for each byte that
            conversions move, from which on quantizing gains time.
        repeated_share: Share (0..1) of a program's products or instructions that loops
            over blocks spelled out again and again would do without, from which those
            are worth a finding.
        repeated_instructions: Instructions of a program from which that matters.
        launch_share: Share (0..1) of the step's time from which what loops, or in a trace
            short kernels, spend on launching is worth a finding.
        short_kernel_seconds: Seconds on average up to which a traced kernel is short.
        loop_launches: Kernels that a loop launches in a step from which that matters.
        warning_share: Share (0..1) of the step, in the measure that a rule is
            about, from which a finding is a warning and no longer a note.
        error_share: The same for an error.
        donation_bytes: Bytes from which a copy that defeats an alias, and a
            result that could have had an argument's buffer, are worth a finding.
        memory_bytes: Bytes at the peak from which buffers are worth a finding.
        memory_share: Share (0..1) of the peak from which one array is much of it.
        residual_share: Share (0..1) of the peak from which what is kept for the
            backward pass is most of it.
        attention_keys: Keys that each query meets from which scores in memory are
            worth a finding.
        padding_share: Share (0..1) of the step's floor, padding included, from which
            multiplying the padding of tiles is worth a finding.
        filled_share: Share (0..1) of the chip's memory up to which keeping more
            is said to fit.
        state_share: Share (0..1) of the chip's memory, or where that is unknown of
            the state, from which copies of the state are worth a finding.
        replicated_bytes: Bytes on one device from which they are.
        compile_seconds: Seconds of XLA's compile from which it is long.
        traced_share: Share (0..1) of a recording's window from which what the host did in
            it, or what a device waited for, is worth a finding.
        eager_kernels: Kernels of one run up to which a program is a single operation.
    """

    constant_bytes: int = 1 << 20
    product_flops_share: float = 0.01
    donation_bytes: int = 1 << 20
    memory_bytes: int = 1 << 24
    memory_share: float = 0.2
    residual_share: float = 0.5
    filled_share: float = 0.8
    state_share: float = 0.1
    replicated_bytes: int = 1 << 28
    compile_seconds: float = 30.0
    mixed_flops_share: float = 0.2
    traffic_share: float = 0.01
    layout_bytes: int = 1 << 20
    reread_bytes: int = 1 << 24
    wire_share: float = 0.01
    reshard_bytes: int = 1 << 20
    exposed_share: float = 0.02
    float64_bytes: int = 4096
    quantized_flops_per_byte: float = 500.0
    repeated_share: float = 0.6
    repeated_instructions: int = 1000
    launch_share: float = 0.1
    loop_launches: int = 1000
    short_kernel_seconds: float = 5e-6
    warning_share: float = 0.05
    error_share: float = 0.25
    attention_keys: int = 512
    padding_share: float = 0.02
    traced_share: float = 0.02
    eager_kernels: int = 2

    def severity(self, share: float) -> Severity:
        """How much something matters that is this share (0..1) of the step."""
        if share >= self.error_share:
            return Severity.ERROR
        return Severity.WARNING if share >= self.warning_share else Severity.NOTE


@analysis
def default_limits() -> Limits:
    """The limits that hold where a session is given none."""
    return Limits()


@dataclass(frozen=True)
class Rule:
    """One thing that the audit looks for.

    Attributes:
        code: Stable code, for example ``HS301``; its first digit is the class.
        name: Short name, for example ``large-constant``.
        category: The class that it belongs to.
        function: Yields the findings.
        summary: First paragraph of the docstring, on one line.
        sections: Text of the docstring under each of :data:`SECTIONS`.
    """

    code: str
    name: str
    category: Category
    function: Callable[..., Iterator[Finding]]
    summary: str
    sections: Mapping[str, str]

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """What the function takes, resolved on first use."""
        return needs_of(self.function)


class RuleRegistry(Mapping[str, Rule]):
    """Rules by code, in the order of their codes."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}

    def __getitem__(self, code: str) -> Rule:
        return self._rules[code]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._rules))

    def __len__(self) -> int:
        return len(self._rules)

    def register(
        self, code: str, name: str, category: Category
    ) -> Callable[[RuleFunction], RuleFunction]:
        """A decorator that takes a generator function as the rule ``code``.

        Raises:
            ValueError: The code or name is malformed, taken, or of another
                class; or the docstring lacks one of :data:`SECTIONS`.
        """
        match = _CODE.fullmatch(code)
        if match is None or int(match[1]) != category.number:
            raise ValueError(
                f"{code}: a rule of class {category.number} ({category.title}) "
                f"has a code like HS{category.number}01"
            )
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{code}: {name!r} should be lower-case words joined by dashes")
        for other in self._rules.values():
            if code == other.code or name == other.name:
                raise ValueError(f"{code} {name}: taken by {other.code} {other.name}")

        def decorate(function: RuleFunction) -> RuleFunction:
            summary, sections = parse_docstring(code, inspect.getdoc(function) or "")
            self._rules[code] = Rule(code, name, category, function, summary, sections)
            return function

        return decorate

    def explain(self, code: str) -> Rule:
        """The rule of that code or name; case does not matter.

        Raises:
            UsageError: There is none; the hint names the nearest codes.
        """
        wanted = code.strip()
        for found in self.values():
            if wanted.upper() == found.code or wanted.lower() == found.name:
                return found
        raise UsageError(f"there is no rule {code}", hint=self._nearest(wanted))

    def _nearest(self, wanted: str) -> str:
        from difflib import get_close_matches

        names = {key: r for r in self.values() for key in (r.code, r.name)}
        close = get_close_matches(wanted.upper(), names, 3) + get_close_matches(
            wanted.lower(), names, 3, cutoff=0.5
        )
        shown = list(dict.fromkeys(names[key].code for key in close)) or list(self)
        return "Try one of: " + ", ".join(f"{code} ({self[code].name})" for code in shown) + "."


RULES = RuleRegistry()
"""The rules of hloscope itself and of what a user registers."""


def rule(code: str, name: str, category: Category) -> Callable[[RuleFunction], RuleFunction]:
    """Register a generator function as a rule; its parameters say by type what it needs.

    Args:
        code: Stable code; its first digit is the number of the class.
        name: Lower-case words joined by dashes.
        category: The class.

    Raises:
        ValueError: See :meth:`RuleRegistry.register`.
    """
    return RULES.register(code, name, category)


def explain(code: str) -> Rule:
    """The registered rule of that code or name.

    Raises:
        UsageError: There is none; the hint names the nearest codes.
    """
    return RULES.explain(code)


def parse_docstring(code: str, doc: str) -> tuple[str, dict[str, str]]:
    """Split a rule's docstring into its first paragraph and its headed sections.

    A heading is one of :data:`SECTIONS` alone on its line, with or without a
    colon after it or number signs before it.

    Raises:
        ValueError: A section is missing, empty, or out of order.
    """
    sections: dict[str, list[str]] = {}
    preamble: list[str] = []
    current = preamble
    for line in doc.splitlines():
        title = _heading(line)
        if title is None:
            current.append(line)
        elif title in sections:
            raise ValueError(f"{code}: the docstring has {title!r} twice")
        else:
            current = sections[title] = []
    texts = {title: inspect.cleandoc("\n" + "\n".join(body)) for title, body in sections.items()}
    missing = [title for title in SECTIONS if not texts.get(title)]
    if missing:
        raise ValueError(f"{code}: the docstring lacks {', '.join(map(repr, missing))}")
    if list(texts) != list(SECTIONS):
        raise ValueError(f"{code}: the sections come in the order {', '.join(SECTIONS)}")
    summary = " ".join("\n".join(preamble).split("\n\n")[0].split())
    return summary, texts


def _heading(line: str) -> str | None:
    text = line.strip().lstrip("#").strip().rstrip(":").lower()
    for title in SECTIONS:
        if text == title.lower():
            return title
    return None


def call(found: Rule, arguments: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Run a rule to its end.

    Raises:
        ValueError: It yielded a finding under another rule's code or class.
    """
    findings = tuple(found.function(**arguments))
    for finding in findings:
        if (finding.code, finding.category) != (found.code, found.category):
            raise ValueError(f"yielded a finding as {finding.code} ({finding.category.title})")
    return findings
