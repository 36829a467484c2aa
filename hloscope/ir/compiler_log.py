"""What XLA's compiler says on standard error while it compiles, as far as it is understood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "FullRematerialization",
    "SlowFold",
    "full_rematerializations_from_document",
    "read_full_rematerializations",
    "read_slow_folds",
    "slow_folds_from_document",
]

_ALARM = re.compile(
    r"slow_operation_alarm\.cc:\d+\]\s*(?:The operation took (?P<took>\d[\w.]*)\s*)?"
    r"Constant folding an instruction is taking > (?P<least>\d[\w.]*):"
    r"\s*%?(?P<name>[\w.-]+) = (?P<text>[^\n]*)"
)
_INVOLUNTARY = re.compile(
    r"\[SPMD\] Involuntary full rematerialization\. The compiler (?:cannot go|was not able to go)"
    r" from sharding (?P<source>\{[^\n]*?\}) to (?P<target>\{[^\n]*?\})"
    r" (?:efficiently|without doing a full rematerialization of the tensor)"
    r" for HLO operation:? %?(?P<name>[\w.-]+) = (?P<text>[^\n]*)"
)
_TIME = re.compile(r"([\d.]+)(h|ms|us|ns|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_SHAPE = re.compile(r"\w+\[[\d,]*\]")


@dataclass(frozen=True, slots=True)
class SlowFold:
    """One instruction on constants that XLA ran on the host while compiling.

    Attributes:
        instruction: Its name.
        shape: Its result, for example ``f32[512,512]``; empty where unreadable.
        op_name: The name stack that JAX gave it; may be empty.
        seconds: How long it ran in all, or until XLA warned of it.
        ended: Whether that is all of it.
    """

    instruction: str
    shape: str
    op_name: str
    seconds: float
    ended: bool


@dataclass(frozen=True, slots=True)
class FullRematerialization:
    """One value that XLA's partitioner gathers whole on every device to shard it anew.

    Attributes:
        instruction: The name that it had in the partitioner.
        shape: What one device held of it, for example ``f32[512,512]``; empty where
            unreadable.
        op_name: The name stack that JAX gave it; may be empty.
        source: The sharding that it had, as HLO prints it.
        target: The sharding that it was to have.
    """

    instruction: str
    shape: str
    op_name: str
    source: str
    target: str


def read_full_rematerializations(log: str) -> tuple[FullRematerialization, ...]:
    """What the partitioner warns of, each once, in the log's order.

    Args:
        log: Standard error of the process that compiled.
    """
    found: dict[FullRematerialization, None] = {}
    for warning in _INVOLUNTARY.finditer(log):
        shape, op_name = _SHAPE.match(warning["text"]), _OP_NAME.search(warning["text"])
        one = FullRematerialization(
            warning["name"],
            shape[0] if shape is not None else "",
            op_name[1] if op_name is not None else "",
            warning["source"],
            warning["target"],
        )
        found[one] = None
    return tuple(found)


def full_rematerializations_from_document(data: Any) -> tuple[FullRematerialization, ...] | None:
    """Read back what ``dataclasses.asdict`` made of each; ``None`` stays ``None``.

    Raises:
        TypeError, KeyError: It is something else.
    """
    if data is None:
        return None
    keys = ("instruction", "shape", "op_name", "source", "target")
    return tuple(FullRematerialization(*_texts(item, keys)) for item in data)


def read_slow_folds(log: str) -> tuple[SlowFold, ...]:
    """The slow foldings that the log warns of, each once, in the log's order.

    XLA warns when one takes long, and at its end says once more how long it took.

    Args:
        log: Standard error of the process that compiled.
    """
    found: dict[str, SlowFold] = {}
    for alarm in _ALARM.finditer(log):
        shape, op_name = _SHAPE.match(alarm["text"]), _OP_NAME.search(alarm["text"])
        found[alarm["name"]] = SlowFold(
            alarm["name"],
            shape[0] if shape is not None else "",
            op_name[1] if op_name is not None else "",
            _seconds(alarm["took"] or alarm["least"]),
            alarm["took"] is not None,
        )
    return tuple(found.values())


def _seconds(text: str) -> float:
    """Seconds of a duration as Abseil prints it: ``1s``, ``5.5s``, ``1m2.5s``."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _TIME.findall(text))


def slow_folds_from_document(data: Any) -> tuple[SlowFold, ...] | None:
    """Read back what ``dataclasses.asdict`` made of each; ``None`` stays ``None``.

    Raises:
        TypeError, KeyError, ValueError: It is something else.
    """
    if data is None:
        return None
    return tuple(_slow_fold(item) for item in data)


def _slow_fold(item: Mapping[str, Any]) -> SlowFold:
    name, shape, op_name = _texts(item, ("instruction", "shape", "op_name"))
    return SlowFold(name, shape, op_name, float(item["seconds"]), bool(item["ended"]))


def _texts(item: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    texts = [item[key] for key in keys]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"{item!r} where texts are expected")
    return texts
