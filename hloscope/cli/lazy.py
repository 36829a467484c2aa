"""Commands that are imported when they run, and help laid out in sections."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

import typer.core
import typer.main

__all__ = ["Entry", "LazyGroup", "SectionedCommand", "SectionedGroup"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of a group.

    Attributes:
        name: As it is typed.
        module: Dotted path of the module whose ``app`` is the command.
        summary: The line beside its name, so that the group's help need not
            import it.
    """

    name: str
    module: str
    summary: str


class _Commands(MutableMapping[str, Any]):
    """A group's commands by name, each imported when it is looked up."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            entry = self._entries[name]
            command = typer.main.get_command(importlib.import_module(entry.module).app)
            command.name = name
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _format_sections(command: Any, context: Any, formatter: Any) -> None:
    """Parameters under the heading that they ask for, in order of declaration."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            title = getattr(parameter, "rich_help_panel", None) or kind
            sections.setdefault(title, []).append(record)
    last = sections.pop("Options", None)
    if last:
        sections["Options"] = last
    for title, records in sections.items():
        with formatter.section(title):
            formatter.write_dl(records, col_max=24)


def _format_examples(command: Any, formatter: Any) -> None:
    """The lines of the epilog as they are; click would fill them into a paragraph."""
    if command.epilog:
        with formatter.section("Examples"):
            for line in command.epilog.strip().splitlines():
                formatter.write(f"  {line}\n")


class SectionedCommand(typer.core.TyperCommand):
    """A command whose help groups its options, and whose epilog holds examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  (click's signature)
        """Write the examples."""
        _format_examples(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections."""
        _format_sections(self, ctx, formatter)


class SectionedGroup(typer.core.TyperGroup):
    """A group whose help groups its options, and whose epilog holds examples."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  (click's signature)
        """Write the examples."""
        _format_examples(self, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections, then the commands."""
        _format_sections(self, ctx, formatter)
        self.format_commands(ctx, formatter)


class LazyGroup(SectionedGroup):
    """A group whose commands live in modules of their own."""

    entries: ClassVar[tuple[Entry, ...]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.entries)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (click's signature)
        """Names in the order of the entries; imports none of them."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the names with their summaries; imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in self.entries])
