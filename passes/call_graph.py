"""Which instruction calls which computation, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from hloscope.errors import InputError
from hloscope.ir import Computation, Instruction, Module
from hloscope.pipeline.analyses import analysis

__all__ = ["Call", "CallGraph", "CallKind", "call_graph"]


class CallKind(StrEnum):
    """How often one execution of the caller runs the callee."""

    ONCE = "once"
    BODY = "body"
    CONDITION = "condition"
    BRANCH = "branch"
    ELEMENT = "element"  # a reducer or comparator, run on many elements or none
    OPAQUE = "opaque"  # handed to a custom call, which does with it what it likes


@dataclass(frozen=True, slots=True)
class Call:
    """One use of a computation by an instruction.

    Attributes:
        caller: The instruction that calls.
        callee: The computation that it calls.
        kind: How often it runs it.
        position: Which of the caller's computations this is, for branches.
        attribute: The caller's attribute that names the callee.
    """

    caller: Instruction
    callee: Computation
    kind: CallKind
    position: int = 0
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class CallGraph:
    """The calls among the computations that the entry reaches.

    Attributes:
        order: Computations that the entry reaches, callees before callers; the
            entry is last.
        calls: Calls out of a computation, in the order of its instructions.
        callers: Calls of a computation, from anywhere that is reached.
    """

    order: tuple[Computation, ...]
    calls: Mapping[Computation, tuple[Call, ...]]
    callers: Mapping[Computation, tuple[Call, ...]]

    def instructions(self) -> Iterable[Instruction]:
        """Every instruction that can run, callees' first."""
        for computation in self.order:
            yield from computation.instructions


# Opcodes that never name a computation. What is not listed is asked, so that
# an opcode of tomorrow costs time rather than a wrong graph.
_NEVER_CALL = frozenset(
    """
    abs add add-dependency after-all all-gather all-gather-done all-gather-start
    all-reduce-done all-to-all and atan2 bitcast bitcast-convert broadcast cbrt ceil clamp
    collective-permute collective-permute-done collective-permute-start compare complex
    concatenate constant convert convolution copy copy-done copy-start cosine divide domain
    dot dynamic-slice dynamic-update-slice erf exponential exponential-minus-one fft floor
    gather get-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one
    logistic maximum minimum multiply negate not opt-barrier or outfeed pad parameter
    partition-id popcnt power ragged-dot real recv recv-done reduce-precision remainder
    replica-id reshape reverse rng rng-bit-generator rng-get-and-update-state
    round-nearest-afz round-nearest-even rsqrt scaled-dot select send send-done
    set-dimension-size shift-left shift-right-arithmetic shift-right-logical sign sine slice
    sqrt subtract tan tanh transpose tuple xor
    """.split()  # noqa: SIM905  (a list of these would fill two screens)
)

_KINDS = {
    ("fusion", "calls"): CallKind.ONCE,
    ("call", "to_apply"): CallKind.ONCE,
    ("call", "calls"): CallKind.ONCE,
    ("async", "calls"): CallKind.ONCE,
    ("while", "body"): CallKind.BODY,
    ("while", "condition"): CallKind.CONDITION,
    ("scan", "to_apply"): CallKind.BODY,
    ("conditional", "branch_computations"): CallKind.BRANCH,
    ("conditional", "true_computation"): CallKind.BRANCH,
    ("conditional", "false_computation"): CallKind.BRANCH,
}


@analysis
def call_graph(module: Module) -> CallGraph:
    """Find every call that the entry can reach.

    The second half of an asynchronous pair (``-update``, ``-done``) repeats its
    start's computation in some texts; only the start calls it.

    Raises:
        InputError: A computation calls itself, directly or through others.
    """
    calls: dict[Computation, tuple[Call, ...]] = {}
    callers: dict[Computation, list[Call]] = {}
    order: list[Computation] = []
    open_: set[Computation] = {module.entry}
    stack = [(module.entry, iter(_calls_of(module.entry, calls)))]
    while stack:
        computation, pending = stack[-1]
        for call in pending:
            callers.setdefault(call.callee, []).append(call)
            if call.callee in open_:
                raise InputError(
                    f"computation %{call.callee.name} calls itself through %{call.caller.name}",
                    place=module.file,
                    hint="No XLA program does this; check whether the file was edited.",
                )
            if call.callee not in calls:
                open_.add(call.callee)
                stack.append((call.callee, iter(_calls_of(call.callee, calls))))
                break
        else:
            stack.pop()
            open_.discard(computation)
            order.append(computation)
    return CallGraph(tuple(order), calls, {c: tuple(found) for c, found in callers.items()})


def _calls_of(
    computation: Computation, calls: dict[Computation, tuple[Call, ...]]
) -> tuple[Call, ...]:
    found: list[Call] = []
    for instruction in computation.instructions:
        opcode = instruction.opcode
        if opcode not in _NEVER_CALL and not opcode.endswith(("-done", "-update")):
            found += _calls_by(instruction)
    calls[computation] = result = tuple(found)
    return result


def _calls_by(instruction: Instruction) -> list[Call]:
    names = instruction.called_names()
    if not names:
        return []
    base = instruction.opcode.removesuffix("-start")
    computations = instruction.computation.module.computations
    found: list[Call] = []
    branches = 0
    for key, called in names.items():
        kind = _kind(base, key)
        for name in called:
            callee = computations.get(name)
            if callee is None:
                raise instruction.error(f"there is no computation {name!r}")
            # A predicate takes the true branch first, an index the branch of its number.
            found.append(Call(instruction, callee, kind, branches, key))
            branches += kind is CallKind.BRANCH
    if branches == 1:
        found = [replace(call, kind=CallKind.ONCE) for call in found]
    return found


def _kind(base: str, key: str) -> CallKind:
    if base == "custom-call":
        return CallKind.OPAQUE
    return _KINDS.get((base, key), CallKind.ONCE if key == "calls" else CallKind.ELEMENT)
