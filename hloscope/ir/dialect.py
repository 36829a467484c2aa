"""Telling apart what people mistake for HLO text."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Complaint", "not_hlo"]


@dataclass(frozen=True, slots=True)
class Complaint:
    """What a text is instead of HLO, and what to do about it."""

    what: str
    hint: str


_MLIR = re.compile(
    r"(?:module\b[^\n]*\{|\#loc|func\.func|builtin\.module|%\w+ = (?:stablehlo|mhlo)\.)"
)
_HLO = re.compile(r"HloModule\b|(?:ENTRY\s+)?%?[\w.\-]+\s*(?:\(|\{)")
_OPTIMIZED = "Give optimized HLO: jitted.lower(*args).compile().as_text()."


def not_hlo(text: str, position: int) -> Complaint | None:
    """Say what the text at ``position`` is when it cannot be an HLO module."""
    head = text[position : position + 4096]
    if head.startswith("HloModule"):
        return None
    if _MLIR.match(head) or "stablehlo." in head or "func.func" in head:
        return Complaint(
            "this is MLIR (StableHLO), what JAX hands to XLA, not HLO",
            f"{_OPTIMIZED} For HLO before optimization: lowered.compiler_ir('hlo').as_hlo_text().",
        )
    if head.startswith(("{ lambda", "let ")):
        return Complaint("this is a jaxpr, not HLO", _OPTIMIZED)
    if re.match(r"(; ModuleID|target triple|define )", head):
        return Complaint("this is LLVM IR, not HLO", _OPTIMIZED)
    if re.match(r"\s*(\.version|\.target)", head):
        return Complaint("this is PTX, not HLO", _OPTIMIZED)
    if head.lstrip().startswith("<"):
        return Complaint("this is HTML or XML, not HLO", _OPTIMIZED)
    if not _HLO.match(head):
        return Complaint("this is not HLO: no 'HloModule' and no computation here", _OPTIMIZED)
    return None
