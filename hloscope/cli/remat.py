"""``hloscope remat``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from hloscope.answers.remat import SHOWN
from hloscope.cli.answer import answer
from hloscope.cli.lazy import SectionedCommand
from hloscope.cli.options import OutputOptions, SourceOptions, spread
from hloscope.cli.output import print_report
from hloscope.cli.progress import PhaseProgress
from hloscope.errors import UsageError

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

EXAMPLES = """
hloscope remat --arch causal_transformer --set remat=full --target h100
hloscope remat --arch causal_transformer --set remat=full --beside none --target h100
hloscope remat --arch causal_transformer --compare none,dots,full --target h100
hloscope remat step.hlo
"""


@app.command(cls=SectionedCommand, epilog=EXAMPLES)
@spread
def remat(
    options: SourceOptions,
    output: OutputOptions,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="POLICIES",
            help="Compile an architecture with each of these, side by side: none,dots,full.",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside",
            metavar="SOURCE",
            show_default=False,
            help="The same step without its policy, to compare with; of an --arch a value of "
            "remat, such as none.",
        ),
    ] = None,
    chip: Annotated[
        str | None,
        typer.Option(
            "--chip",
            metavar="NAME",
            help="With --compare: the chip that it should fit; else the target's.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            show_default=False,
            help=f"How many checkpoints are listed; 0 for all. {SHOWN} by default, "
            "all with --json.",
        ),
    ] = None,
) -> int:
    """What is computed again, what that spares, and what it costs.

    Whether jax.checkpoint survived the compiler, how many FLOPs run again and
    where, how many bytes need not be kept for it, and what devices exchange twice.
    """
    import hloscope

    if compare is not None:
        policies = [policy.strip() for policy in compare.split(",") if policy.strip()]
        return _compare(options, output, policies, chip, top=top, beside=beside)
    if chip is not None:
        raise UsageError("--chip goes with --compare only", hint="Leave it out.")
    rows = top if top is not None else (0 if output.json else SHOWN)
    return answer(partial(hloscope.remat, top=rows, beside=beside), options, output)


def _compare(
    options: SourceOptions,
    output: OutputOptions,
    policies: list[str],
    chip: str | None,
    *,
    top: int | None,
    beside: str | None,
) -> int:
    from hloscope.api import compare_remat

    for name, value in (
        ("SOURCE", options.source),
        ("--top", top is not None),
        ("--beside", beside is not None),
        ("--module or --list", options.module or options.list_modules),
    ):
        if value:
            raise UsageError(
                f"{name} does not go with --compare, which compiles an architecture",
                hint="Leave it out, and give --arch NAME.",
            )
    if not policies:
        raise UsageError(
            "no policy to compare", place="--compare", hint="Give some: --compare none,dots,full."
        )
    with PhaseProgress() as progress:
        load = options.load_options()
        load.pop("module")
        report = compare_remat(policies, chip=chip, progress=progress, **load)
    return print_report(report, as_json=output.json)
