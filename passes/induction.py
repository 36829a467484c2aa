"""Trip counts read from a loop's own instructions.

XLA records ``known_trip_count`` on CPU and GPU; TPU modules and older CPU ones
leave it to the reader. The condition compares two integers, each of which is a
constant, or an element of the loop's tuple that the body advances by a constant
or leaves alone. How often it holds follows from where they start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hloscope.ir import Computation, Instruction
from hloscope.ir.dtypes import BITS, is_integer
from hloscope.passes.call_graph import Call, CallKind

__all__ = ["NotInducedError", "induce_trip_count"]

Path = tuple[int, ...]

_MAX_STEPS = 4000
_MAX_DEPTH = 40

# One operand in, the same value out, as far as one integer is concerned.
_PASS_THROUGH = frozenset(
    {
        "add-dependency",
        "bitcast",
        "broadcast",
        "convert",
        "copy",
        "copy-done",
        "domain",
        "opt-barrier",
        "reshape",
    }
)


class NotInducedError(Exception):
    """The loop's trip count does not follow from its instructions; says why."""


@dataclass(frozen=True, slots=True)
class _Affine:
    """``element + offset``: an element of the loop's tuple, or no element, plus a number."""

    element: Path | None
    offset: int


@dataclass(frozen=True, slots=True)
class _Scope:
    """What the parameters of the computation at hand stand for.

    ``operands`` of the calling instruction, to be read in ``outer``. A loop's
    own computation has neither: its parameter is the loop's tuple.
    """

    operands: tuple[Instruction, ...] | None = None
    outer: _Scope | None = None


_LOOP = _Scope()


def induce_trip_count(
    loop: Instruction, callers: Mapping[Computation, tuple[Call, ...]]
) -> tuple[int, bool]:
    """How often the body of a ``while`` runs.

    Args:
        loop: The ``while``.
        callers: Calls of every computation, to follow a start value outwards.

    Returns:
        The count, and whether it is exact. Where the condition joins two
        comparisons, one of which cannot be read, it is an upper bound.

    Raises:
        NotInducedError: The loop's condition or its values cannot be read.
    """
    condition = loop.callee("condition")
    body = loop.callee("body")
    if condition is None or body is None or len(loop.operands) != 1:
        raise NotInducedError("it lacks a condition, a body or a start value")
    return _Induction(loop, body, callers).trip_count(condition.root)


class _Induction:
    """The reading of one loop, within a budget of steps."""

    def __init__(
        self,
        loop: Instruction,
        body: Computation,
        callers: Mapping[Computation, tuple[Call, ...]],
        steps: int = _MAX_STEPS,
    ) -> None:
        self.loop = loop
        self.body = body
        self.callers = callers
        self.steps = steps

    def trip_count(self, root: Instruction) -> tuple[int, bool]:
        test, _, scope = self.strip(root, (), _LOOP)
        if test.opcode == "and" and len(test.operands) == 2:
            return self.least_of(test, scope)
        return self.from_comparison(test, scope), True

    def least_of(self, test: Instruction, scope: _Scope) -> tuple[int, bool]:
        """A loop that runs while both comparisons hold ends with the first that fails."""
        counts: list[int] = []
        reasons: list[str] = []
        for side in test.operands:
            try:
                comparison, _, inner = self.strip(side, (), scope)
                counts.append(self.from_comparison(comparison, inner))
            except NotInducedError as error:
                reasons.append(str(error))
        if not counts:
            raise NotInducedError(reasons[0])
        return min(counts), not reasons

    def from_comparison(self, test: Instruction, scope: _Scope) -> int:
        if test.opcode != "compare" or len(test.operands) != 2:
            raise NotInducedError(f"its condition is no comparison: %{test.name} ({test.opcode})")
        left, left_step = self.start_and_step(test.operands[0], scope)
        right, right_step = self.start_and_step(test.operands[1], scope)
        direction = test.attributes.get("direction", "")
        return _iterations(left - right, left_step - right_step, direction)

    def start_and_step(self, side: Instruction, scope: _Scope) -> tuple[int, int]:
        """First value of one side of the comparison, and what an iteration adds to it."""
        value = self.resolve(side, (), scope)
        if value.element is None:
            return value.offset, 0
        after = self.resolve(self.body.root, value.element, _LOOP)
        if after.element != value.element:
            raise NotInducedError(f"%{side.name} does not change by a constant")
        start = self.outside(self.loop.operands[0], value.element)
        return start + value.offset, _signed(after.offset, side.shape.dtype)

    def strip(
        self, value: Instruction, path: Path, scope: _Scope
    ) -> tuple[Instruction, Path, _Scope]:
        """Follow a value through everything that only hands it on."""
        while True:
            self.spend()
            opcode = value.opcode
            operands = value.operands
            if opcode in _PASS_THROUGH and operands:
                value = operands[0]
            elif opcode == "copy-start" and operands:
                # Reached through copy-done, which passes the path of the value itself.
                value = operands[0]
            elif opcode == "get-tuple-element" and operands:
                path = (value.tuple_index or 0, *path)
                value = operands[0]
            elif opcode == "tuple" and path and path[0] < len(operands):
                value, path = operands[path[0]], path[1:]
            elif opcode in ("fusion", "call"):
                callee = value.callee("calls") or value.callee("to_apply")
                if callee is None:
                    return value, path, scope
                value, scope = callee.root, _Scope(operands, scope)
            elif opcode == "parameter" and scope.operands is not None:
                number = value.parameter_number or 0
                if number >= len(scope.operands) or scope.outer is None:
                    return value, path, scope
                value, scope = scope.operands[number], scope.outer
            else:
                return value, path, scope

    def resolve(self, value: Instruction, path: Path, scope: _Scope, depth: int = 0) -> _Affine:
        """An integer as an element of the loop's tuple plus a constant."""
        if depth > _MAX_DEPTH:
            raise NotInducedError("its arithmetic nests too deep to follow")
        value, path, scope = self.strip(value, path, scope)
        opcode = value.opcode
        if opcode == "parameter":
            return _Affine(path, 0)
        if opcode == "constant":
            return _Affine(None, _integer(value))
        if opcode == "while" and value.operands and self.unchanged(value, path):
            return self.resolve(value.operands[0], path, scope, depth + 1)
        if opcode in ("add", "subtract", "multiply") and len(value.operands) == 2 and not path:
            left = self.resolve(value.operands[0], (), scope, depth + 1)
            right = self.resolve(value.operands[1], (), scope, depth + 1)
            combined = _combine(opcode, left, right)
            if combined is not None:
                return combined
        raise NotInducedError(f"%{value.name} ({opcode}) is known only at run time")

    def outside(self, value: Instruction, path: Path, depth: int = 0) -> int:
        """A value from before the loop starts, as a number."""
        if depth > _MAX_DEPTH:
            raise NotInducedError("its start value is handed in from too far outside")
        value, path, _ = self.strip(value, path, _LOOP)
        if value.opcode == "constant" and not path:
            return _integer(value)
        if value.opcode == "parameter":
            return self.handed_in(value, path, depth)
        if value.opcode == "while" and value.operands and self.unchanged(value, path):
            return self.outside(value.operands[0], path, depth + 1)
        if value.opcode in ("add", "subtract", "multiply") and len(value.operands) == 2:
            left, right = (self.outside(side, (), depth + 1) for side in value.operands)
            combined = _combine(value.opcode, _Affine(None, left), _Affine(None, right))
            if combined is not None:
                return combined.offset
        raise NotInducedError(f"it starts from %{value.name} ({value.opcode}), not from a constant")

    def handed_in(self, parameter: Instruction, path: Path, depth: int) -> int:
        """Value of a parameter of the computation around, where one place calls it."""
        calls = self.callers.get(parameter.computation, ())
        if len(calls) != 1:
            where = "several places" if calls else "the program's arguments"
            raise NotInducedError(f"%{parameter.name} comes from {where}")
        call = calls[0]
        operands = call.caller.operands
        number = parameter.parameter_number or 0
        if call.kind is CallKind.ONCE and call.caller.opcode != "conditional":
            place = number
        elif call.kind in (CallKind.BRANCH, CallKind.ONCE):
            place = 1 + call.position
        elif call.kind is CallKind.BODY and self.unchanged(call.caller, path):
            place = 0
        else:
            raise NotInducedError(f"%{parameter.name} changes in the loop around")
        if place >= len(operands):
            raise NotInducedError(f"%{call.caller.name} passes no value for %{parameter.name}")
        return self.outside(operands[place], path, depth + 1)

    def unchanged(self, loop: Instruction, path: Path) -> bool:
        """Whether an element of another loop's tuple comes out as it went in."""
        body = loop.callee("body")
        if body is None:
            return False
        inner = _Induction(loop, body, self.callers, self.steps)
        try:
            return inner.resolve(body.root, path, _LOOP) == _Affine(path, 0)
        except NotInducedError:
            return False
        finally:
            self.steps = inner.steps

    def spend(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise NotInducedError("its arithmetic is too long to follow")


def _combine(opcode: str, left: _Affine, right: _Affine) -> _Affine | None:
    if opcode == "multiply":
        if left.element is not None or right.element is not None:
            return None
        return _Affine(None, left.offset * right.offset)
    if opcode == "subtract":
        if right.element is not None:
            return None
        right = _Affine(None, -right.offset)
    if left.element is not None and right.element is not None:
        return None
    element = left.element if left.element is not None else right.element
    return _Affine(element, left.offset + right.offset)


def _integer(constant: Instruction) -> int:
    literal = constant.literal
    value = literal.scalar if literal is not None else None
    if not is_integer(constant.shape.dtype) or not isinstance(value, int):
        raise NotInducedError(f"%{constant.name} ({constant.shape}) is no integer that is known")
    return int(value)


def _signed(step: int, dtype: str) -> int:
    """A step as the machine adds it: the unsigned 4294967295 counts down by one."""
    bits = BITS.get(dtype, 64)
    half = 1 << (bits - 1)
    return (step + half) % (1 << bits) - half


def _iterations(difference: int, step: int, direction: str) -> int:
    """How often ``difference`` passes the test while ``step`` is added each time.

    Args:
        difference: Left side minus right side before the first iteration.
        step: What one iteration adds to it.
        direction: HLO's name of the comparison with zero.

    Raises:
        NotInducedError: It would hold until the integers wrap around.
    """
    if direction in ("GT", "GE"):
        difference, step = -difference, -step
        direction = {"GT": "LT", "GE": "LE"}[direction]
    if direction == "LE":
        difference, direction = difference - 1, "LT"
    if direction == "LT":
        if difference >= 0:
            return 0
        if step > 0:
            return -(difference // step)
    elif direction == "NE":
        if difference == 0:
            return 0
        if step and -difference % step == 0 and -difference // step > 0:
            return -difference // step
    elif direction == "EQ":
        if difference != 0:
            return 0
        if step:
            return 1
    else:
        raise NotInducedError(f"its comparison has the direction {direction or 'none'}")
    raise NotInducedError("its condition never fails before the counter wraps around")
