"""The command line: parse, call the API, hand the report to a renderer.

Nothing heavy is imported here: ``hloscope --help`` loads neither JAX nor numpy
nor rich, and a command's own module is imported when that command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``hloscope`` with these arguments, or with those of the process.

    Returns:
        0 after a report, 1 when a gate was asked for and does not hold, 2 when
        the tool could not do its job or was asked for something it cannot do,
        130 when interrupted, 141 when nobody reads the output any more.
    """
    from hloscope.cli.run import run

    return run(sys.argv[1:] if arguments is None else list(arguments))
