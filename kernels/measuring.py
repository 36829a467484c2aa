"""The process in which kernels run: ``python -m hloscope.kernels.measuring REQUEST``.

It is started by :mod:`hloscope.kernels.running` and answers on its standard
output, a line of JSON an event; what JAX and the kernels print goes to standard
error. A kernel that takes the process down costs its own row and no other.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from hloscope.chips import ChipKind, chip_of_device_kind, kind_of_platform
from hloscope.kernels.case import Case, Direction
from hloscope.kernels.errors import bounds_of, errors_of
from hloscope.kernels.measurement import Outcome
from hloscope.kernels.operands import draw, in_float64, round_to
from hloscope.kernels.programs import arguments_of, donation_of, program_of
from hloscope.kernels.registry import parse_case

SEED = 20
WARM_UP = 2
SHORT = 1e-3  # seconds; shorter calls are timed several in a row
MOST_IN_A_ROW = 1000

Send = Callable[..., None]
Program = Callable[[], Any]
"""A compiled case with its operands; what it donates is what its last call gave back."""


def main(request: Mapping[str, Any], send: Send) -> None:
    """Measure every case of a request, those of one shape beside each other.

    Args:
        request: ``cases`` in text, ``rounds`` and ``seconds`` for the timing of
            each, and whether to ``interpret`` Pallas kernels of other devices.
        send: Takes an event by keywords.
    """
    device = jax.devices()[0]
    send(event="device", kind=device.device_kind, platform=device.platform)
    cases = [parse_case(text) for text in request["cases"]]
    for _, group in itertools.groupby(cases, key=lambda case: case.group):
        together = list(group)
        send(event="oracle", case=together[0].text)
        try:
            truth = _Truth(together[0])
        except MemoryError:
            for case in together:
                _fail(send, case, Outcome.OUT_OF_MEMORY, "the oracle does not fit this machine")
            continue
        ready: dict[str, Program] = {}
        for case in together:
            send(event="begin", case=case.text)
            program = _prepare(case, truth, device, send, interpret=request["interpret"])
            if program is not None:
                ready[case.text] = program
        _time(ready, request["rounds"], request["seconds"], send)
        send(event="run", case=None)


class _Truth:
    """The operands of one shape, and what the oracle makes of them."""

    def __init__(self, case: Case) -> None:
        self.generator = np.random.default_rng(SEED)
        oracle = case.family.oracle()
        self.values = draw(oracle.operands(case), case.dtype, self.generator)
        self.exact = in_float64(self.values)
        self.results = oracle.results(case, self.exact)
        self.cotangent: NDArray[Any] = np.zeros(0)
        self.gradients: dict[str, Any] = {}

    def differentiate(self, case: Case, dtype: str) -> None:
        """Draw the cotangent and find the gradients, once for all implementations."""
        if self.gradients:
            return
        first = self.results[case.family.outputs[0]]
        self.cotangent = round_to(self.generator.standard_normal(first.shape), dtype)
        self.gradients = case.family.oracle().gradients(
            case, self.exact, self.cotangent.astype(np.float64)
        )


def _prepare(
    case: Case, truth: _Truth, device: Any, send: Send, *, interpret: bool
) -> Program | None:
    """Compile a case, run it once and hold it against the oracle.

    Returns:
        What is to be timed; nothing where there is no time to be had.
    """
    chip = chip_of_device_kind(device.device_kind)
    kind = kind_of_platform(device.platform)
    reason = case.implementation.unsupported(case, chip, kind)
    interpreted = False
    if reason is not None:
        can = case.implementation.interpreted and case.implementation.refused(case, chip) is None
        interpreted = can and kind is ChipKind.CPU and kind not in case.implementation.kinds
        if not (interpreted and interpret):
            _fail(send, case, Outcome.UNSUPPORTED, reason)
            return None
    try:
        # Implementations may keep the same values in other dtypes.
        arrays = {
            one.name: jnp.asarray(round_to(truth.values[one.name], one.dtype_in(case.dtype)))
            for one in case.family.oracle().operands(case)
        }
        arguments: tuple[Any, ...] = arguments_of(case, arrays)
        if case.direction is Direction.BACKWARD:
            output = _output_dtype(case, arrays, interpret=interpreted)
            truth.differentiate(case, output)
            arguments = (arrays, jnp.asarray(truth.cotangent))
        donation = donation_of(case)
        program = jax.jit(program_of(case, interpret=interpreted), donate_argnums=donation)
        compiled = program.lower(*arguments).compile()
        send(
            event="compiled",
            case=case.text,
            memory=_memory(compiled),
            hlo="" if interpreted else compiled.as_text() or "",
        )
        given = jax.block_until_ready(compiled(*arguments))
    except MemoryError as error:
        _fail(send, case, Outcome.OUT_OF_MEMORY, _words(error))
        return None
    except Exception as error:
        if _is_refusal(error):
            _fail(send, case, Outcome.UNSUPPORTED, _words(error))
            return None
        full = "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower()
        _fail(send, case, Outcome.OUT_OF_MEMORY if full else Outcome.FAILED, _words(error))
        return None
    errors = _errors(case, truth, given)
    outcome = Outcome.INTERPRETED if interpreted else Outcome.MEASURED
    send(event="checked", case=case.text, outcome=outcome.value, errors=errors)
    if interpreted:
        return None
    if donation:
        kept, state = arguments
        return _Repeated(compiled, kept, {name: given[name] for name in state})
    return lambda: compiled(*arguments)


class _Repeated:
    """A program that donates its state: every call gets what the last one made of it.

    So a step is called in training. No copy is timed, the state is in memory once, and
    the executable is the one whose memory is reported.
    """

    def __init__(self, compiled: Any, kept: Any, state: Mapping[str, Any]) -> None:
        self._compiled, self._kept, self._state = compiled, kept, state

    def __call__(self) -> Any:
        """Run once."""
        given = self._compiled(self._kept, self._state)
        self._state = {name: given[name] for name in self._state}
        return given


# Where JAX and tokamax keep kernels and their compilers, and JAX what it lowers for a platform.
_KERNELS = (
    "/jax/experimental/pallas/",
    "/jax/_src/pallas/",
    "/jax/_src/cudnn/",
    "/jax/_src/tpu_custom_call.py",
    "/jax/_src/interpreters/mlir.py",
    "/tokamax/",
)


def _is_refusal(error: Exception) -> bool:
    """Whether a kernel says that it does not take a case; other errors are mistakes.

    Kernels refuse shapes by assertions, and by errors of type and value, as mistakes of
    hloscope's own show as well: these are refusals only below a kernel that is not ours,
    or where JAX lowers for a platform that does not have what was traced.
    """
    if isinstance(error, (ImportError, NotImplementedError)):
        return True
    if not isinstance(error, (AssertionError, TypeError, ValueError)):
        return False
    ours = Path(__file__).resolve().parent
    files = [Path(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    after = itertools.takewhile(lambda file: ours not in file.parents, reversed(files))
    return any(place in file.as_posix() for file in after for place in _KERNELS)


def _errors(case: Case, truth: _Truth, given: Any) -> list[dict[str, Any]]:
    bound = bounds_of(case)
    if case.direction is Direction.FORWARD:
        found = errors_of(given, truth.results, bound, gradients=False)
    else:
        output, gradients = given
        first = case.family.outputs[0]
        found = errors_of(output, {first: truth.results[first]}, bound, gradients=False)
        found += errors_of(gradients, truth.gradients, bound, gradients=True)
    return [
        {
            "name": one.name,
            "gradient": one.gradient,
            # JSON has no infinity.
            "largest": str(one.largest),
            "norm": str(one.norm),
            "bound": one.bound,
        }
        for one in found
    ]


def _output_dtype(case: Case, arrays: Mapping[str, jax.Array], *, interpret: bool) -> str:
    forward = case.family.programs().implement(case, interpret=interpret)
    return str(jax.eval_shape(forward, arrays)[case.family.outputs[0]].dtype)


def _memory(compiled: Any) -> dict[str, int]:
    try:
        stats = compiled.memory_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return {}
    names = ("argument", "output", "alias", "temp")
    found = {f"{n}_size_in_bytes": int(getattr(stats, f"{n}_size_in_bytes")) for n in names}
    found["peak_memory_in_bytes"] = int(getattr(stats, "peak_memory_in_bytes", 0))
    return found


def _time(ready: Mapping[str, Program], rounds: int, seconds: float, send: Send) -> None:
    """Time the cases in turn, round by round, so that what disturbs one disturbs all.

    A case that has had its seconds sits the remaining rounds out, after three at least.
    """
    in_a_row = {}
    for text, program in ready.items():
        send(event="run", case=text)
        for _ in range(WARM_UP):
            last = _seconds(program, 1)
        in_a_row[text] = min(max(1, math.ceil(SHORT / max(last, 1e-9))), MOST_IN_A_ROW)
    taken: dict[str, list[float]] = {text: [] for text in ready}
    order = list(ready)
    for number in range(rounds):
        for text in _rotated(order, number):
            spent = sum(taken[text]) * in_a_row[text]
            if len(taken[text]) < 3 or spent < seconds:
                send(event="run", case=text)
                taken[text].append(_seconds(ready[text], in_a_row[text]))
    for text, found in taken.items():
        send(event="timed", case=text, seconds=found)


def _rotated(order: Sequence[str], number: int) -> Sequence[str]:
    """Every case comes first once in so many rounds as there are cases."""
    start = number % max(len(order), 1)
    return [*order[start:], *order[:start]]


def _seconds(program: Program, times: int) -> float:
    """Seconds of one of so many calls in a row, from the first's start to the last's result."""
    start = time.perf_counter()
    for _ in range(times):
        result = program()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / times


def _fail(send: Send, case: Case, outcome: Outcome, reason: str) -> None:
    send(event="failed", case=case.text, outcome=outcome.value, reason=reason)


def _words(error: BaseException) -> str:
    """The first line of what was raised, or its kind where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


if __name__ == "__main__":
    # Whatever prints must not come between the events.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(**event: Any) -> None:
        """Write one event as a line."""
        answers.write(json.dumps(event) + "\n")

    main(json.loads(Path(sys.argv[1]).read_text()), tell)
    answers.flush()
    sys.stderr.flush()
    # Device runtimes may hang or crash in their destructors; everything was said.
    os._exit(0)
