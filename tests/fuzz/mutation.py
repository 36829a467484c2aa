"""Mutated inputs for the readers, and what may come of them.

A reader may accept a mutant or refuse it with a HloscopeError. Anything else
(another exception, ten seconds without an answer) is a bug; the input is
written to the working folder so that it can be looked at.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from hloscope.errors import HloscopeError
from hloscope.ir import Module
from hloscope.ir.verify import verify

__all__ = ["FIXTURES", "run", "touch"]

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
LIMIT_SECONDS = 10

Mutate = Callable[[random.Random], bytes]


def touch(module: Module) -> None:
    """Read everything that a pass might read."""
    verify(module)
    for instruction in module.instructions():
        _ = instruction.attributes, instruction.called, instruction.stack
        _ = instruction.backend_config, instruction.frontend_attributes, instruction.window
        _ = instruction.replica_groups, instruction.dim_labels, instruction.dot_dims
        _ = instruction.slices, instruction.padding, instruction.control_predecessors
        _ = instruction.tuple_index, instruction.custom_call_target
        if literal := instruction.literal:
            literal.facts()


def run(name: str, mutate: Mutate, read: Callable[[bytes], Sequence[Module]]) -> int:
    """Feed mutants to a reader and count what comes of them; the exit code."""
    parser = argparse.ArgumentParser(description=f"Mutated {name} must never surprise the reader.")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    signal.signal(signal.SIGALRM, _too_long)
    accepted = refused = surprises = 0
    slowest = 0.0
    for number in range(options.inputs):
        data = mutate(rng)
        start = time.perf_counter()
        signal.alarm(LIMIT_SECONDS)
        try:
            for module in read(data):
                touch(module)
            accepted += 1
        except HloscopeError:
            refused += 1
        except Exception:
            surprises += 1
            path = Path(f"surprise_{name}_{options.seed}_{number}")
            path.write_bytes(data)
            print(path, file=sys.stderr)
            traceback.print_exc(limit=-4)
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - start)
    print(
        f"{name}: {options.inputs} inputs, {accepted} accepted, {refused} refused, "
        f"{surprises} surprises, slowest {slowest:.2f} s"
    )
    return 1 if surprises else 0


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"no answer in {LIMIT_SECONDS} s")
