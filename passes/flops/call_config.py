"""Reading a library call's configuration, which any text may have spoiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["integer", "integers", "nested", "section"]

Config = Mapping[str, Any]


def section(config: Config, key: str) -> Config:
    """The part under ``key``, else the whole: before the end of 2023 parts had no key."""
    part = config.get(key)
    return part if isinstance(part, dict) else config


def nested(config: Config, key: str) -> Config:
    """The part under ``key``; empty if there is none."""
    part = config.get(key)
    return part if isinstance(part, dict) else {}


def integers(config: Config, key: str) -> tuple[int, ...]:
    """A list of integers, which XLA writes as strings; it leaves empty lists out.

    Raises:
        ValueError: The list holds something else.
    """
    values = config.get(key, ())
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"its configuration has {key} = {values!r}")
    return tuple(integer(value, key) for value in values)


def integer(value: object, key: str) -> int:
    """One integer, as a number or a string.

    Raises:
        ValueError: It is neither.
    """
    if isinstance(value, int | str):
        return int(value)
    raise ValueError(f"its configuration has {key} = {value!r}")
