"""Options that several commands share, each declared once."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hloscope.api import LoadOptions
    from hloscope.pipeline.config import Configuration

__all__ = [
    "ConfigOptions",
    "Install",
    "NoCache",
    "OutputOptions",
    "SourceOptions",
    "XlaOptions",
    "spread",
]

_WHAT, _HOW, _DUMP = "What to look at", "How it is compiled", "Dumps of several modules"

XlaOptions = Annotated[
    list[str],
    typer.Option(
        "--xla",
        metavar="K=V",
        show_default=False,
        rich_help_panel=_HOW,
        help="An XLA compiler option; may be repeated.",
    ),
]
Install = Annotated[
    bool,
    typer.Option(
        "--install", rich_help_panel=_HOW, help="Install the target's plug-in if it is missing."
    ),
]
NoCache = Annotated[
    bool,
    typer.Option(
        "--no-cache", rich_help_panel=_HOW, help="Compile again even if the cache has it."
    ),
]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to look at and how it is compiled: shared by every command that compiles."""

    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            show_default=False,
            help=(
                "file.py:attr or package.module:attr; an HLO file (.hlo, .txt, .pb, .gz of "
                "these); a .hloscope file; a folder that --xla_dump_to wrote; - for stdin."
            ),
        ),
    ] = None
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            metavar="NAME",
            rich_help_panel=_WHAT,
            help="One of hloscope's architectures, instead of SOURCE; 'hloscope archs' lists them.",
        ),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="P", rich_help_panel=_WHAT, help="Size of the --arch."),
    ] = None
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="K=V",
            show_default=False,
            rich_help_panel=_WHAT,
            help="An option of the --arch; may be repeated.",
        ),
    ] = field(default_factory=list)
    bad: Annotated[
        list[str],
        typer.Option(
            "--bad",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_WHAT,
            help="Build the --arch with this antipattern in it; may be repeated.",
        ),
    ] = field(default_factory=list)
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="T",
            rich_help_panel=_HOW,
            help="Chip, such as h100:8 or v5e:2x2; 'hloscope targets' lists them; else cpu.",
        ),
    ] = None
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh",
            metavar="AXES",
            rich_help_panel=_HOW,
            help="Mesh axes over the target's devices, such as data=2,fsdp=4.",
        ),
    ] = None
    xla: XlaOptions = field(default_factory=list)
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="S",
            min=0.001,
            rich_help_panel=_HOW,
            help="Give up after so many seconds of tracing and compiling.",
        ),
    ] = None
    install: Install = False
    no_cache: NoCache = False
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            metavar="NAME",
            rich_help_panel=_DUMP,
            help="Which one; the one with the most instructions otherwise.",
        ),
    ] = None
    list_modules: Annotated[
        bool, typer.Option("--list", rich_help_panel=_DUMP, help="List them and stop.")
    ] = False

    def load_options(self) -> LoadOptions:
        """The options as the API's :func:`hloscope.load` takes them.

        Raises:
            UsageError: A ``K=V`` has no ``=``, or a mesh axis no whole size.
        """
        from hloscope.capture.request import parse_compiler_options, parse_mesh, parse_options

        return {
            "arch": self.arch,
            "preset": self.preset,
            "settings": parse_options(self.settings),
            "bad": tuple(dict.fromkeys(self.bad)),
            "target": self.target,
            "mesh": parse_mesh(self.mesh) if self.mesh is not None else {},
            "xla": parse_compiler_options(self.xla),
            "timeout": self.timeout,
            "install": self.install,
            "cache": not self.no_cache,
            "module": self.module,
        }


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """Where the rules' thresholds, selection and suppressions stand."""

    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with the rules' settings; else the nearest pyproject.toml's.",
        ),
    ] = None

    def load(self) -> Configuration:
        """What the file says, or the nearest ``pyproject.toml`` with ``[tool.hloscope]``.

        Raises:
            UsageError: It cannot be read, or what it says is wrong.
        """
        from hloscope.api import project_configuration

        return project_configuration(self.config)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How the answer is written."""

    json: Annotated[
        bool,
        typer.Option("--json", help="Write the documented JSON document (docs/json.md) instead."),
    ] = False


def spread(function: Callable[..., int]) -> Callable[..., int]:
    """Let a command take whole option classes.

    A parameter annotated with a dataclass becomes one option a field on the
    command line, and arrives as an instance of the class.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, tuple[type, list[str]]] = {}
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint) and isinstance(hint, type):
            own = _fields_as_parameters(hint)
            groups[parameter.name] = (hint, [p.name for p in own])
            parameters += own
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hint, kind=keyword))

    def expanded(**values: Any) -> int:
        whole = {
            name: group(**{f: values.pop(f) for f in members})
            for name, (group, members) in groups.items()
        }
        return function(**whole, **values)

    expanded.__name__ = function.__name__
    expanded.__doc__ = function.__doc__
    expanded.__module__ = function.__module__
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _fields_as_parameters(options: type) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(options, include_extras=True)
    parameters = []
    for each in fields(options):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        parameters.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=hints[each.name],
            )
        )
    return parameters
