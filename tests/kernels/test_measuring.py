"""What the measuring process says of cases that raise, without starting it."""

import jax
import pytest

from hloscope.kernels import measuring, registry

REQUEST = {"rounds": 3, "seconds": 0, "interpret": False}


def said_of(monkeypatch, error, shape="s4,d8", name="swiglu"):
    """Every event of a request in which building any program but ``fused`` raises."""
    real = measuring.program_of

    def build(case, *, interpret):
        if case.implementation.name != "fused":
            raise error
        return real(case, interpret=interpret)

    monkeypatch.setattr(measuring, "program_of", build)
    cases = [f"{name}/{one}/{shape}" for one in ("two", "fused")]
    events = []
    measuring.main({**REQUEST, "cases": cases}, lambda **event: events.append(event))
    return events


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (NotImplementedError("no such width\nsecond line"), "unsupported", "no such width"),
        (ValueError(), "failed", "ValueError"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."),
            "out of memory",
            "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.",
        ),
        (MemoryError(), "out of memory", "MemoryError"),
        (jax.errors.JaxRuntimeError("INTERNAL: odd"), "failed", "INTERNAL: odd"),
    ],
)
def test_what_a_case_raises_becomes_its_row_and_the_others_go_on(
    error, outcome, reason, monkeypatch
):
    events = said_of(monkeypatch, error)
    (failed,) = [event for event in events if event["event"] == "failed"]
    two, fused = (registry.parse_case(f"swiglu/{one}/s4,d8").text for one in ("two", "fused"))
    assert failed == {"event": "failed", "case": two, "outcome": outcome, "reason": reason}
    (timed,) = [event for event in events if event["event"] == "timed"]
    assert timed["case"] == fused
    assert all(seconds > 0 for seconds in timed["seconds"])


@pytest.mark.parametrize(
    ("files", "refuses"),
    [
        (["/lib/jax/experimental/pallas/ops/tpu/flash.py"], True),
        (["/lib/jax/_src/cudnn/fused.py", "/lib/jax/_src/numpy/array.py"], True),
        (["/lib/jax/_src/interpreters/mlir.py", "/lib/jax/_src/lax/lax.py"], True),
        (["/lib/jax/_src/numpy/array.py"], False),
        (["/lib/jax/_src/pallas/call.py", measuring.__file__], False),
    ],
)
@pytest.mark.parametrize("kind", [AssertionError, TypeError, ValueError])
def test_only_kernels_that_are_not_ours_refuse_by_errors_of_type_and_value(kind, files, refuses):
    def fail():
        raise kind("no")

    call = fail
    for file in reversed(files):
        space = {"call": call}
        exec(compile("def outer():\n    call()", file, "exec"), space)
        call = space["outer"]
    with pytest.raises(kind) as raised:
        call()
    # The frames of this file, which are no kernel's, lie outside and at the end.
    assert measuring._is_refusal(raised.value) is refuses


def test_an_oracle_without_memory_times_nothing(monkeypatch):
    def full(_case):
        raise MemoryError

    monkeypatch.setattr(measuring, "_Truth", full)
    events = said_of(monkeypatch, AssertionError())
    assert [event["outcome"] for event in events if event["event"] == "failed"] == (
        ["out of memory"] * 2
    )
    assert not [event for event in events if event["event"] in ("checked", "timed")]


def test_every_implementation_gets_its_turn_to_be_first():
    order = ["a", "b", "c"]
    firsts = {measuring._rotated(order, number)[0] for number in range(3)}
    assert firsts == set(order)
    assert all(sorted(measuring._rotated(order, number)) == order for number in range(7))
