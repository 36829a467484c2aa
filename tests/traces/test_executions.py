"""Executions of a program that nobody numbered: by an operation that each has once."""

import pytest
from oracles.xspaces import PlaneWriter, Reference, space

from hloscope.traces.reading import read_recording
from hloscope.traces.steps import StepSource, steps_of
from hloscope.traces.timeline import devices_of


@pytest.fixture
def steps(tmp_path):
    """The steps of kernels: of each when it begins, how long it runs, and its operation."""

    def of(*lanes):
        plane = PlaneWriter("/device:GPU:0")
        for number, lane in enumerate(lanes):
            plane.line(
                f"Stream #{number}(Compute)",
                [
                    plane.event(
                        f"kernel_{operation}",
                        begin,
                        length,
                        correlation_id=1 + begin,
                        hlo_op=Reference(operation),
                        hlo_module=Reference(module),
                    )
                    for begin, length, operation, module in lane
                ],
            )
        path = tmp_path / "h.xplane.pb"
        path.write_bytes(space(plane))
        recording = read_recording(path)
        (device,) = devices_of(recording)
        found = steps_of(recording, device)
        assert found.source is StepSource.INFERRED
        return found.name, [(step.begin, step.end) for step in found.rows]

    return of


def test_an_execution_reaches_from_its_first_kernel_to_the_last_end_on_any_stream(steps):
    first = [(n * 100, 10, "add.1", "jit_step") for n in range(5)]
    second = [(n * 100 + 5, 40 + n, "dot.2", "jit_step") for n in range(5)]
    name, found = steps(first, second)
    assert name == "jit_step"
    assert found == [(n * 100, n * 100 + 45 + n) for n in range(5)]


def test_what_runs_several_times_before_the_operation_that_marks_belongs_to_its_execution(steps):
    lane = []
    for n in range(4):
        begin = n * 1000
        lane += [(begin + 10 * turn, 5, "looped", "jit_step") for turn in range(6)]
        lane += [(begin + 100, 7, "once", "jit_step"), (begin + 200, 50, "looped", "jit_step")]
    _, found = steps(lane)
    assert found == [(n * 1000, n * 1000 + 250) for n in range(4)]


def test_the_program_that_ran_longest_makes_the_steps(steps):
    short = [(n * 100 + 80, 5, "add.9", "jit_other") for n in range(6)]
    long = [(n * 100, 60, "add.1", "jit_step") for n in range(3)]
    name, found = steps(sorted(short + long))
    assert name == "jit_step"
    assert found == [(n * 100, n * 100 + 60) for n in range(3)]
