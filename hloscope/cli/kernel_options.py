"""Options that ``kernels`` and ``bench`` share: which case, and how it is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from hloscope.cli.options import Install, NoCache, XlaOptions

if TYPE_CHECKING:
    from hloscope.sources import LoadOptions

__all__ = ["CaseOptions", "CompileOptions"]

_WHAT, _HOW = "What to run", "How it is compiled"


@dataclass(frozen=True, slots=True)
class CaseOptions:
    """Which cases of a family."""

    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="SHAPE",
            rich_help_panel=_WHAT,
            help="Sizes that are not the defaults, such as b4,s1024,h8,d64.",
        ),
    ] = None
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="K=V",
            show_default=False,
            rich_help_panel=_WHAT,
            help="A setting of the family, such as causal=1; may be repeated.",
        ),
    ] = field(default_factory=list)
    implementations: Annotated[
        list[str],
        typer.Option(
            "--impl",
            metavar="NAME",
            show_default=False,
            rich_help_panel=_WHAT,
            help="Only this implementation; may be repeated.",
        ),
    ] = field(default_factory=list)
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="D",
            rich_help_panel=_WHAT,
            help="bfloat16, float16 or float32; else bfloat16.",
        ),
    ] = None
    backward: Annotated[
        bool, typer.Option("--backward", rich_help_panel=_WHAT, help="With the gradients.")
    ] = False


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What a kernel is compiled for, and how."""

    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="T",
            rich_help_panel=_HOW,
            help="Chip, such as h100 or v5e; 'hloscope targets' lists them; else cpu.",
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
            help="Give up an implementation after so many seconds.",
        ),
    ] = None
    install: Install = False
    no_cache: NoCache = False

    def load_options(self) -> LoadOptions:
        """The options as the API's :func:`hloscope.load` takes them.

        Raises:
            UsageError: A ``K=V`` has no ``=``.
        """
        from hloscope.capture.request import parse_compiler_options

        return {
            "target": self.target,
            "xla": parse_compiler_options(self.xla),
            "timeout": self.timeout,
            "install": self.install,
            "cache": not self.no_cache,
        }
