"""The kernels that hloscope has, by name, and cases read from text. Imports no JAX."""

from __future__ import annotations

import difflib
import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hloscope.chips import Chip, ChipKind, chip_of_device_kind, kind_of_platform
from hloscope.errors import UsageError
from hloscope.kernels.case import Case, Direction, Family

if TYPE_CHECKING:
    from hloscope.capture.step import Step

__all__ = ["build", "cases_of", "get", "names", "parse_case", "parse_settings", "parse_shape"]

_FAMILIES = (
    "attention",
    "grouped_matmul",
    "rms_norm",
    "swiglu",
    "vocabulary_head",
    "adamw",
    "ssd_scan",
    "short_convolution",
)
_LARGEST = 1 << 31


def names() -> tuple[str, ...]:
    """Names of all families, the most asked for first."""
    return _FAMILIES


def get(name: str) -> Family:
    """Look a family up.

    Raises:
        UsageError: There is none of that name; it gives the nearest ones.
    """
    if name not in _FAMILIES:
        raise UsageError(
            f"no kernels called {name!r}", hint=_nearest(name, _FAMILIES, "families of kernels")
        )
    family: Family = importlib.import_module(f"hloscope.kernels.specs.{name}").FAMILY
    return family


def parse_shape(family: Family, text: str) -> tuple[dict[str, int], dict[str, float]]:
    """Read ``b4,s1024,causal=1`` into the sizes and settings that it names.

    Raises:
        UsageError: The family has no such size or setting, or the value is none.
    """
    sizes: dict[str, int] = {}
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" in part:
            pairs.append(part)
            continue
        match = re.fullmatch(r"([a-z])([0-9]+)", part)
        known = {size.letter: size.name for size in family.sizes}
        if match is not None and match[1] in known and not 1 <= int(match[2]) <= _LARGEST:
            raise UsageError(
                f"{part!r} is no {known[match[1]]}",
                place=f"--shape {text}",
                hint=f"Sizes are whole numbers from 1 to {_LARGEST:,}.",
            )
        if match is None or match[1] not in known:
            shown = ", ".join(f"{size.letter} ({size.name})" for size in family.sizes)
            raise UsageError(
                f"{part!r} is no size of {family.name}",
                place=f"--shape {text}",
                hint=f"Write sizes as letter and number, such as {_example(family)}; "
                f"there are {shown}.",
            )
        sizes[match[1]] = int(match[2])
    return sizes, parse_settings(family, pairs)


def parse_settings(family: Family, pairs: Iterable[str]) -> dict[str, float]:
    """Read ``name=value`` pairs.

    Raises:
        UsageError: The family has no such setting, or the value is none of it.
    """
    known = {setting.name: setting for setting in family.settings}
    found: dict[str, float] = {}
    for pair in pairs:
        name, _, value = (piece.strip() for piece in pair.partition("="))
        if name not in known:
            raise UsageError(
                f"{family.name} has no setting {name!r}",
                place=f"--set {pair}",
                hint=_nearest(name, tuple(known), "settings"),
            )
        setting = known[name]
        number = {"true": "1", "false": "0"}.get(value.lower(), value)
        pattern = r"[0-9]{1,9}" if setting.whole else r"[0-9]{1,9}(\.[0-9]{1,9})?"
        if not re.fullmatch(pattern, number) or not (
            setting.least <= float(number) <= (math.inf if setting.most is None else setting.most)
        ):
            kind = "a whole number" if setting.whole else "a number"
            limit = f" from {setting.least:g}" if setting.least else ""
            limit += f" up to {setting.most:g}" if setting.most is not None else ""
            raise UsageError(
                f"{name} takes {kind}{limit}, not {value!r}",
                place=f"--set {pair}",
                hint=f"{setting.help[0].upper()}{setting.help[1:]}.",
            )
        found[name] = float(number)
    return found


def cases_of(
    family: Family,
    *,
    sizes: Mapping[str, int],
    settings: Mapping[str, float],
    implementations: Sequence[str] = (),
    dtype: str = "",
    direction: Direction = Direction.FORWARD,
) -> list[Case]:
    """One case for each implementation.

    Args:
        family: What is computed.
        sizes: Those that are not the defaults.
        settings: Those that are not the defaults.
        implementations: Names; all of the family's if empty.
        dtype: What operands are rounded to; the family's first if empty.
        direction: What is run.

    Raises:
        UsageError: There is no such implementation, dtype or direction, or no
            implementation can take such sizes.
    """
    known = tuple(one.name for one in family.implementations)
    for name in implementations:
        if name not in known:
            raise UsageError(
                f"{family.name} has no implementation {name!r}",
                hint=_nearest(name, known, "implementations"),
            )
    dtype = dtype or family.dtypes[0]
    if dtype not in family.dtypes:
        raise UsageError(
            f"{family.name} does not come in {dtype}",
            place=f"--dtype {dtype}",
            hint=_nearest(dtype, family.dtypes, "dtypes"),
        )
    if direction not in family.directions:
        raise UsageError(
            f"{family.name} has no {direction.value} pass", hint="Leave --backward out."
        )
    chosen = {size.letter: sizes.get(size.letter, size.default) for size in family.sizes}
    for size in family.sizes:
        if size.like is not None and size.letter not in sizes:
            chosen[size.letter] = chosen[size.like]
    impossible = family.refuses(chosen)
    if impossible is not None:
        shown = ",".join(f"{letter}{value}" for letter, value in sizes.items())
        raise UsageError(f"{family.name} has no such shape: {impossible}", place=f"--shape {shown}")
    switches = {one.name: settings.get(one.name, one.default) for one in family.settings}
    return [
        Case(family, one, chosen, switches, dtype, direction)
        for one in family.implementations
        if not implementations or one.name in implementations
    ]


def parse_case(text: str) -> Case:
    """Read ``FAMILY/IMPLEMENTATION[/SHAPE[/DTYPE[/DIRECTION]]]``.

    Raises:
        UsageError: A part of it names nothing that there is.
    """
    parts = text.split("/")
    if not 2 <= len(parts) <= 5:
        raise UsageError(
            f"{text!r} names no kernel",
            hint="Write FAMILY/IMPLEMENTATION/SHAPE, such as attention/xla/b4,s1024,h8,d64.",
        )
    name, implementation, shape, dtype, direction = (*parts, "", "", "")[:5]
    family = get(name)
    if direction not in ("", *Direction):
        raise UsageError(
            f"{direction!r} is no direction", hint=f"Choose one of {', '.join(Direction)}."
        )
    sizes, settings = parse_shape(family, shape)
    (case,) = cases_of(
        family,
        sizes=sizes,
        settings=settings,
        implementations=(implementation,),
        dtype=dtype,
        direction=Direction(direction or Direction.FORWARD),
    )
    return case


def build(text: str, device: Any = None) -> Step:
    """The step of a case in text; imports JAX, and allocates no array.

    Args:
        text: As :func:`parse_case` reads it.
        device: JAX's device that it is compiled for, which need not be there.

    Raises:
        UsageError: As for :func:`parse_case`, or the implementation does not take
            the case, or is not for such devices.
    """
    case = parse_case(text)
    chip, kind = None, None
    if device is not None:
        chip, kind = chip_of_device_kind(device.device_kind), kind_of_platform(device.platform)
    _check(case, chip, kind, text)
    programs = importlib.import_module("hloscope.kernels.programs")
    step: Step = programs.kernel_step(case, device)
    return step


def _check(case: Case, chip: Chip | None, kind: ChipKind | None, text: str) -> None:
    one, family = case.implementation, case.family
    name = f"{family.name}/{one.name}"
    if kind is not None and kind not in one.kinds:
        target = next(_TARGETS[other] for other in _TARGETS if other in one.kinds)
        others = ", ".join(
            other.name
            for other in family.implementations
            if kind in other.kinds
            and other.refused(replace(case, implementation=other), chip) is None
        )
        raise UsageError(
            f"{name} is written for {one.written_for}",
            hint=f"Choose --target {target}, or another implementation: {others}.",
        )
    if one.is_missing:
        raise UsageError(f"{name} needs {one.package}", hint=f"pip install {one.package}")
    reason = one.refused(case, chip)
    if reason is not None:
        raise UsageError(f"{name} does not take this: {reason}", place=text)


_TARGETS = {ChipKind.CPU: "cpu", ChipKind.GPU: "h100", ChipKind.TPU: "v5e"}


def _example(family: Family) -> str:
    return ",".join(f"{one.letter}{one.default}" for one in family.sizes if one.like is None)


def _nearest(word: str, known: Sequence[str], kind: str) -> str:
    near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}The {kind} are: {', '.join(known)}." if known else f"There are no {kind}."
