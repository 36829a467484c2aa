"""See what XLA made of a JAX step, for any chip, from any laptop.

The public API, loaded on first use so that ``import hloscope`` costs nothing:

* :func:`load` reads a program, or compiles a step into one;
* :func:`alias` says of every parameter whether a result takes its buffer, or why not;
* :func:`audit` looks for nine classes of antipattern;
* :func:`flops` counts products beside XLA's own cost analysis;
* :func:`draw` makes a Graphviz picture of it;
* :func:`dtypes` says in which types it multiplies, adds up and converts;
* :func:`roofline` holds a program against a chip: a floor for its time;
* :func:`memory` says what a program takes at its peak, and for what;
* :func:`collectives` lists what devices send each other, and what of it is exposed;
* :func:`remat` says what is computed again, and what that spares;
* :func:`constants` lists what is baked into the executable;
* :func:`compare_kernels` says what a compiler makes of attention and other kernels;
* :func:`bench` times them here, each beside its errors;
* :func:`trace` says what devices really did, from a profile;
* :func:`check` tests one promise, such as ``donation``;
* :class:`Step` is what a user's file may hold, :class:`Report` what they return.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hloscope.api import (
        alias,
        audit,
        bench,
        check,
        collectives,
        compare_kernels,
        constants,
        draw,
        dtypes,
        flops,
        load,
        memory,
        remat,
        roofline,
        trace,
    )
    from hloscope.capture.step import Step
    from hloscope.errors import HloscopeError
    from hloscope.pipeline.findings import Report

__all__ = [
    "HloscopeError",
    "Report",
    "Step",
    "__version__",
    "alias",
    "audit",
    "bench",
    "check",
    "collectives",
    "compare_kernels",
    "constants",
    "draw",
    "dtypes",
    "flops",
    "load",
    "memory",
    "remat",
    "roofline",
    "trace",
]

_HOMES = {
    "HloscopeError": "hloscope.errors",
    "Report": "hloscope.pipeline.findings",
    "Step": "hloscope.capture.step",
    "alias": "hloscope.api",
    "audit": "hloscope.api",
    "bench": "hloscope.api",
    "check": "hloscope.api",
    "collectives": "hloscope.api",
    "compare_kernels": "hloscope.api",
    "constants": "hloscope.api",
    "draw": "hloscope.api",
    "dtypes": "hloscope.api",
    "flops": "hloscope.api",
    "load": "hloscope.api",
    "memory": "hloscope.api",
    "remat": "hloscope.api",
    "roofline": "hloscope.api",
    "trace": "hloscope.api",
}

__version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from hloscope.versions import installed

        return installed("hloscope") or "unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'hloscope' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
