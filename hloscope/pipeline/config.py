"""What a project asks of its audits: thresholds, rules to run, findings to leave out."""

from __future__ import annotations

import os
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from hloscope.errors import UsageError
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.findings import Finding, Site, Suppressed
from hloscope.pipeline.rules import RULES, Limits

__all__ = ["DEFAULT", "Configuration", "Suppression", "find_configuration", "read_configuration"]

_FILE_NAME = "pyproject.toml"
_LISTS = ("select", "ignore")
_CODE = re.compile(r"HS[1-9](\d\d)?")
_PLACE = re.compile(r"(?P<file>[^:]*\.pyi?)(?::(?P<line>\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Suppression:
    """One entry of ``ignore``.

    Attributes:
        text: The entry as it is written.
        code: Code of a rule, or ``HS`` and the number of a class for all of its rules.
        place: Where it holds: a Python file with or without a line, else a part
            of a scope; everywhere if empty.
    """

    text: str
    code: str
    place: str = ""

    def matches(self, finding: Finding) -> bool:
        """Whether it leaves a finding out.

        A file matches by the end of its path, whole folders at a time. Anything
        else matches the op_name, the pytree path, the instruction or the
        computation: as a pattern of the whole where it holds ``*`` or ``?``, as
        any part of it otherwise.
        """
        return self.names(finding.code, finding.site)

    def names(self, code: str, site: Site) -> bool:
        """Whether it leaves out what a rule finds at a place."""
        if not code.startswith(self.code):
            return False
        if not self.place:
            return True
        file = _PLACE.fullmatch(self.place)
        if file is not None:
            line = file["line"]
            same_line = line is None or int(line) == site.line
            return same_line and _ends_with(site.file or "", file["file"])
        names = (site.op_name, site.leaf, site.instruction, site.computation)
        return any(_matches(self.place, name) for name in names if name)


def _ends_with(path: str, end: str) -> bool:
    path, end = path.replace("\\", "/"), end.replace("\\", "/")
    return path == end or path.endswith("/" + end.lstrip("/"))


def _matches(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern in name
    # Brackets stand in pytree paths and have no other meaning here.
    return fnmatchcase(name, pattern.replace("[", "[[]"))


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a project asks of its audits.

    Attributes:
        limits: Thresholds of the rules.
        select: Codes of the rules to run, or of their classes; all if empty.
        ignore: Findings to leave out.
        source: The file that says so, empty for the defaults.
    """

    limits: Limits = field(default_factory=Limits)
    select: tuple[str, ...] = ()
    ignore: tuple[Suppression, ...] = ()
    source: str = ""

    def selects(self, code: str) -> bool:
        """Whether a rule is to run."""
        return not self.select or any(code.startswith(chosen) for chosen in self.select)

    def entry_for(self, code: str, leaf: str) -> str:
        """The entry of ``ignore`` that leaves out findings of a rule at a leaf, or nothing.

        A rule that speaks of many leaves at once keeps those apart that an
        entry names, so that it silences them and no others.

        Args:
            code: The rule's code.
            leaf: The leaf's pytree path.
        """
        at_leaf = Site(leaf=leaf)
        return next((e.text for e in self.ignore if e.names(code, at_leaf)), "")

    def split(
        self, findings: Sequence[Finding]
    ) -> tuple[tuple[Finding, ...], tuple[Suppressed, ...]]:
        """The findings to report, and those that an entry of ``ignore`` leaves out."""
        kept, left_out = [], []
        for finding in findings:
            by = next((entry for entry in self.ignore if entry.matches(finding)), None)
            if by is None:
                kept.append(finding)
            else:
                left_out.append(Suppressed(finding, by.text))
        return tuple(kept), tuple(left_out)

    def notes(self, suppressed: Sequence[Suppressed], codes: Sequence[str]) -> tuple[str, ...]:
        """What was left out and by which entry, and which entries match nothing.

        Args:
            suppressed: What was left out.
            codes: The rules that ran; entries for others are not spoken of.
        """
        notes = []
        by_entry: dict[str, list[Finding]] = {}
        for one in suppressed:
            by_entry.setdefault(one.by, []).append(one.finding)
        for text, findings in by_entry.items():
            sites = ", ".join(dict.fromkeys(f"{f.code} {_place_of(f)}".strip() for f in findings))
            noun = "finding" if len(findings) == 1 else "findings"
            notes.append(f"{len(findings)} {noun} suppressed by ignore = {text!r}: {sites}")
        for entry in self.ignore:
            ran = any(code.startswith(entry.code) for code in codes)
            if ran and entry.text not in by_entry:
                notes.append(f"ignore = {entry.text!r} matches no finding")
        return tuple(notes)


DEFAULT = Configuration()
"""Every rule, hloscope's own thresholds, nothing left out."""


@analysis
def default_configuration() -> Configuration:
    """The configuration that a rule gets where it is run without one."""
    return DEFAULT


def _place_of(finding: Finding) -> str:
    site = finding.site
    if site.file:
        return f"{site.file}:{site.line}"
    return site.leaf or site.op_name or site.instruction or ""


def find_configuration(folder: str | os.PathLike[str] = ".") -> Configuration:
    """The configuration of the nearest ``pyproject.toml`` with a ``[tool.hloscope]`` table.

    Args:
        folder: Where to begin; the folders above it follow.

    Returns:
        :data:`DEFAULT` where there is none.

    Raises:
        UsageError: A file on the way cannot be read, or the table is wrong.
    """
    start = Path(folder).resolve()
    for each in (start, *start.parents):
        file = each / _FILE_NAME
        if file.is_file():
            table = _tool_table(_load(file), str(file))
            if table is not None:
                return _configuration(table, str(file))
    return DEFAULT


def read_configuration(file: str | os.PathLike[str]) -> Configuration:
    """The configuration of one file.

    Args:
        file: A TOML file with a ``[tool.hloscope]`` table; in one that is not
            named ``pyproject.toml`` the keys may also stand at the top.

    Raises:
        UsageError: It cannot be read, has no such table, or the table is wrong.
    """
    path = Path(file)
    document = _load(path)
    table = _tool_table(document, str(path))
    if table is None:
        if path.name == _FILE_NAME:
            raise UsageError(
                "there is no table [tool.hloscope]",
                place=str(path),
                hint="Add one, or leave --config out.",
            )
        table = document
    return _configuration(table, str(path))


def _load(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"cannot read the configuration: {error.strerror or error}",
            place=str(file),
            hint="Name a TOML file that can be read.",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the configuration is not TOML: {error}", place=str(file), hint="Correct the file."
        ) from None


def _tool_table(document: Mapping[str, Any], place: str) -> Mapping[str, Any] | None:
    tool = document.get("tool")
    table = tool.get("hloscope") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(
            "tool.hloscope is not a table", place=place, hint="Write it as [tool.hloscope]."
        )
    return table


def _configuration(table: Mapping[str, Any], place: str) -> Configuration:
    names = [each.name for each in fields(Limits)]
    limits: dict[str, int | float] = {}
    for key, value in table.items():
        if key in _LISTS:
            continue
        if key not in names:
            near = get_close_matches(key, [*names, *_LISTS], 3, cutoff=0.4) or [*_LISTS, *names]
            raise UsageError(
                f"[tool.hloscope] has no key {key!r}",
                place=place,
                hint=f"Try one of: {', '.join(near)}.",
            )
        limits[key] = _limit(key, value, place)
    return Configuration(
        Limits(**limits),  # type: ignore[arg-type]
        tuple(_code(text, "select", place) for text in _texts(table, "select", place)),
        tuple(_suppression(text, place) for text in _texts(table, "ignore", place)),
        place,
    )


_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def _limit(key: str, value: object, place: str) -> int | float:
    """A threshold's value, of the type that it has in :class:`Limits`."""
    whole = typing.get_type_hints(Limits)[key] is int
    if key.endswith("_bytes") and isinstance(value, str):
        size = _SIZE.fullmatch(value.strip())
        if size is not None:
            base = 1024 if size[3] else 1000
            return int(float(size[1]) * base ** _POWERS[size[2].upper()])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not (whole and isinstance(value, float)):
        number = value >= 0 and (not key.endswith("_share") or value <= 1)  # type: ignore[operator]
        if number:
            return value  # type: ignore[return-value]
    if key.endswith("_share"):
        wanted = "a share from 0 to 1, such as 0.05"
    elif key.endswith("_bytes"):
        wanted = 'a whole number of bytes, or a text such as "64 MiB"'
    else:
        wanted = "a whole number from 0 on" if whole else "a number from 0 on"
    raise UsageError(f"{key} is {value!r}", place=place, hint=f"Give it {wanted}.")


def _texts(table: Mapping[str, Any], key: str, place: str) -> Sequence[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(
            f"{key} is {value!r}", place=place, hint=f'Give a list of texts: {key} = ["HS401"].'
        )
    return value


def _code(text: str, key: str, place: str) -> str:
    """The code of a rule that there is, or of a class.

    Raises:
        UsageError: It is neither; the hint names the nearest codes.
    """
    code = text.strip().upper()
    if _CODE.fullmatch(code) is None or (len(code) > 3 and code not in RULES):
        near = get_close_matches(code, list(RULES), 3, cutoff=0.5) or list(RULES)
        raise UsageError(
            f"{key}: there is no rule {text!r}",
            place=place,
            hint=f"Try one of: {', '.join(near)}; HS4 means all of class 4.",
        )
    return code


def _suppression(text: str, place: str) -> Suppression:
    code, _, where = text.partition(":")
    return Suppression(text, _code(code, "ignore", place), where.strip())
