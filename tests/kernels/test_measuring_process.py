"""What becomes of the other cases when one takes the measuring process down."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hloscope.errors import HloscopeError
from hloscope.kernels import registry, running
from hloscope.kernels.measurement import Outcome

# Plays the measuring process: one case ends it, the others are said to be unsupported.
PLAY = """
import json, os, signal, sys, time
request = json.load(open(sys.argv[1]))
def send(**event):
    print(json.dumps(event), flush=True)
if FATE == "start":
    sys.exit("no JAX here")
send(event="device", kind="toy", platform="cpu")
for text in request["cases"]:
    send(event="oracle", case=text)
    if FATE == "slow oracle":
        time.sleep(60)
    if FATE == "oracle" and ",s8," in text:
        os.kill(os.getpid(), signal.SIGKILL)
    send(event="begin", case=text)
    if "/xla/" in text:
        if FATE == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if FATE == "sleep":
            time.sleep(60)
        if FATE == "raise":
            raise RuntimeError("device lost")
    send(event="failed", case=text, outcome="unsupported", reason="a toy")
"""


@pytest.fixture
def fated(monkeypatch):
    """Has cases of ``xla`` end the process in some way; gives the requests that were made."""
    requests = []

    def put(fate):
        real = subprocess.Popen

        def start(command, **options):
            requests.append(json.loads(Path(command[-1]).read_text())["cases"])
            script = f"FATE = {fate!r}\n{PLAY}"
            return real([sys.executable, "-c", script, command[-1]], **options)

        monkeypatch.setattr(running.subprocess, "Popen", start)
        return requests

    return put


def cases():
    family = registry.get("attention")
    names = ("reference", "xla", "cudnn")
    return [
        case
        for length in (8, 16)
        for case in registry.cases_of(
            family, sizes={"s": length}, settings={}, implementations=names
        )
    ]


@pytest.mark.parametrize(
    ("fate", "outcome", "reason"),
    [
        ("kill", Outcome.OUT_OF_MEMORY, "want of memory"),
        ("raise", Outcome.FAILED, "device lost"),
    ],
)
def test_a_case_that_ends_the_process_costs_its_own_row_only(fate, outcome, reason, fated):
    requests = fated(fate)
    told = []
    bench = running.measure(cases(), rounds=3, seconds=0, progress=told.append)
    assert [row.case.text for row in bench.rows] == [case.text for case in cases()]
    for row in bench.rows:
        if row.case.implementation.name == "xla":
            assert row.outcome is outcome
            assert reason in row.reason
        else:
            assert (row.outcome, row.reason) == (Outcome.UNSUPPORTED, "a toy")
        assert row.times is None
    # Each restart leaves the culprit out, and what was finished with an earlier shape.
    assert [len(request) for request in requests] == [6, 5, 2]
    assert told


def test_a_case_that_says_nothing_for_too_long_is_given_up(fated):
    fated("sleep")
    first, second, third = running.measure(cases()[:3], rounds=3, seconds=0, timeout=5).rows
    assert "out of time" in second.reason
    assert first.reason == third.reason == "a toy"


def test_an_oracle_that_takes_too_long_is_given_up_and_was_announced(fated):
    fated("slow oracle")
    told = []
    bench = running.measure(cases()[:3], rounds=3, seconds=0, timeout=2, progress=told.append)
    for row in bench.rows:
        assert row.outcome is Outcome.FAILED
        assert row.reason.startswith("while its oracle was computed, it ran out of time")
    assert told == ["oracle attention/b4,s8,h8,d64/bfloat16"]


def test_an_oracle_that_does_not_fit_costs_its_own_shape_only(fated):
    requests = fated("oracle")
    bench = running.measure(cases(), rounds=3, seconds=0)
    for row in bench.rows:
        lost = row.case["s"] == 8
        assert row.outcome is (Outcome.OUT_OF_MEMORY if lost else Outcome.UNSUPPORTED)
        assert row.reason.startswith("while its oracle was computed") == lost
    assert [len(request) for request in requests] == [6, 3]


def test_a_process_that_never_starts_is_an_error_with_its_last_words(fated):
    fated("start")
    with pytest.raises(HloscopeError, match="JAX did not start") as failed:
        running.measure(cases(), rounds=3, seconds=0)
    assert "no JAX here" in (failed.value.detail or "")
