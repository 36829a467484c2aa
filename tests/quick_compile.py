"""Options of XLA's CPU compiler for tests that look at no code for the CPU."""

from __future__ import annotations

import jax

__all__ = ["QUICK"]

_UNOPTIMIZED = {"xla_backend_optimization_level": 0}
# Takes two thirds off; newer jaxlibs know no other way to emit a fusion.
_PLAIN_FUSIONS = {**_UNOPTIMIZED, "xla_cpu_use_fusion_emitters": False}


def _known(options: dict[str, object]) -> bool:
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=options)
    except jax.errors.JaxRuntimeError:
        return False
    return True


QUICK = _PLAIN_FUSIONS if _known(_PLAIN_FUSIONS) else _UNOPTIMIZED
