"""From the process' arguments to its exit code; every error ends here."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
import typer.main

from hloscope.cli.lazy import Entry, LazyGroup
from hloscope.errors import HloscopeError, UsageError

__all__ = ["EXIT_CLOSED_PIPE", "EXIT_FAILED", "EXIT_INTERRUPTED", "run"]

EXIT_FAILED = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_CLOSED_PIPE = 141  # 128 + SIGPIPE

# Typer carries its own copy of click now and used the installed one before, so
# the base class of usage errors is found through one that both export.
_ClickError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class _Root(LazyGroup):
    entries = (
        Entry("audit", "hloscope.cli.audit", "Nine classes of antipattern, each with a verdict."),
        Entry(
            "flops",
            "hloscope.cli.flops",
            "FLOPs of the optimized HLO beside XLA's count and the jaxpr's.",
        ),
        Entry(
            "roofline", "hloscope.cli.roofline", "How fast a chip could run it, and what bounds it."
        ),
        Entry(
            "memory", "hloscope.cli.memory", "How much memory it takes, when most, and for what."
        ),
        Entry(
            "dtypes", "hloscope.cli.dtypes", "In which types it multiplies, converts and exchanges."
        ),
        Entry(
            "collectives",
            "hloscope.cli.collectives",
            "What devices send each other, and what of it is exposed.",
        ),
        Entry(
            "remat",
            "hloscope.cli.remat",
            "What is computed again, what that spares, and what it costs.",
        ),
        Entry("alias", "hloscope.cli.alias", "Every parameter: whether a result has its buffer."),
        Entry(
            "constants", "hloscope.cli.constants", "What is baked in: size, contents, name, line."
        ),
        Entry("draw", "hloscope.cli.draw", "Graphviz pictures of the program, for docs."),
        Entry("trace", "hloscope.cli.trace", "What devices really did, from a profile."),
        Entry(
            "kernels",
            "hloscope.cli.kernels",
            "Kernels in several implementations, and what XLA makes of them.",
        ),
        Entry("bench", "hloscope.cli.bench", "Kernels timed here, each beside its errors."),
        Entry("check", "hloscope.cli.check", "Checks for CI: exit 1 when one does not hold."),
        Entry(
            "archs",
            "hloscope.cli.archs",
            "Architectures that --arch knows, or what one of them takes.",
        ),
        Entry("targets", "hloscope.cli.targets", "Chips to compile for; install or remove them."),
        Entry("explain", "hloscope.cli.explain", "What a rule looks for, and what to do."),
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        from hloscope.versions import version_line

        typer.echo(version_line())
        raise typer.Exit


EXAMPLES = """
hloscope audit --arch unet                 nine classes of antipattern
hloscope audit train.py:step               the same for a step of your own
hloscope audit step.hlo                    or for a dump
hloscope flops --arch unet --target h100   FLOPs beside XLA's own count
hloscope check donation --arch unet        exit 1 unless all state is aliased
"""

_app = typer.Typer(
    cls=_Root,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog=EXAMPLES,
)


@_app.callback()
def _root(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the versions of hloscope, jax and jaxlib.",
    ),
) -> None:
    """See what XLA made of a JAX step, for any chip, from any laptop.

    Exit codes: 0 after a report, 1 when a gate does not hold, 2 when hloscope
    could not do its job. 'hloscope COMMAND --help' shows a command's options.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command and turn whatever it raises into a message and an exit code."""
    as_json = "--json" in arguments
    for stream in (sys.stdout, sys.stderr):
        # Scopes and paths may hold what the terminal's encoding does not.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _invoke(list(arguments))
        sys.stdout.flush()
    except HloscopeError as error:
        return _failed(error, as_json=as_json)
    except _ClickError as error:
        return _refused(error, as_json=as_json)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Nobody reads the rest; keep the interpreter's last flush quiet as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CLOSED_PIPE
    except Exception as error:
        if os.environ.get("HLOSCOPE_TRACEBACK"):
            raise
        return _failed(_internal(error), as_json=as_json)
    return code


def _invoke(arguments: list[str]) -> int:
    command = typer.main.get_command(_app)
    try:
        with command.make_context("hloscope", arguments) as context:
            code = command.invoke(context)
    except typer.Exit as finished:
        return finished.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _failed(error: HloscopeError, *, as_json: bool) -> int:
    from hloscope.cli.output import print_error

    with contextlib.suppress(BrokenPipeError):
        print_error(error, as_json=as_json)
    return EXIT_FAILED


def _refused(error: Any, *, as_json: bool) -> int:
    """What click did not accept: its usage line and message, as it words them."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    elif as_json:
        return _failed(UsageError(error.format_message(), place=_command(error)), as_json=True)
    else:
        error.show(file=sys.stderr)
    return EXIT_FAILED


def _internal(error: Exception) -> HloscopeError:
    """A defect of hloscope as a message; its traceback is for whoever asks for it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else None
    return HloscopeError(
        f"hloscope itself failed: {type(error).__name__}: {error}",
        place=place,
        hint="Please report it; with HLOSCOPE_TRACEBACK=1 it shows the traceback to report.",
    )


def _command(error: Any) -> str | None:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else None
