"""Where steps begin and end, and how that is known."""

from oracles.recorded import ONE_MS, gpu, recorded
from oracles.xspaces import PlaneWriter

from hloscope.traces.steps import StepSource, steps_of
from hloscope.traces.timeline import devices_of


def _steps(recording):
    (device,) = devices_of(recording)
    return steps_of(recording, device)


def _host(*annotations):
    """A thread with (number, begin, duration) of a step in milliseconds."""
    plane = PlaneWriter("/host:CPU")
    plane.line(
        "python",
        [
            plane.event("train", round(begin * ONE_MS), round(length * ONE_MS), step_num=number)
            for number, begin, length in annotations
        ],
    )
    return plane


KERNELS = [
    ("fusion", 1.0, 1.0, 0),
    ("dot", 2.0, 2.0, 0),
    ("fusion", 6.0, 1.0, 1),
    ("dot", 7.5, 2.0, 1),
]


def test_work_belongs_to_the_annotation_that_launched_it_however_late_it_runs(tmp_path):
    # Both steps are launched before the device has ended the first.
    steps = _steps(recorded(tmp_path, gpu(KERNELS), _host((5, 0.0, 0.5), (6, 0.5, 0.25))))
    assert (steps.source, steps.name) == (StepSource.ANNOTATED, "train")
    first, second = steps.rows
    assert (first.number, first.begin, first.end) == (5, 1 * ONE_MS, 4 * ONE_MS)
    assert (first.wall, first.busy, first.gap, first.host) == (
        3 * ONE_MS,
        3 * ONE_MS,
        0,
        ONE_MS // 2,
    )
    assert (second.number, second.wall, second.busy) == (6, round(3.5 * ONE_MS), 3 * ONE_MS)
    assert (second.gap, second.host) == (2 * ONE_MS, ONE_MS // 4)


def test_all_that_was_launched_within_an_annotation_is_its_steps_work(tmp_path):
    # An evaluation after the first step, a warm-up before it: other programs, other counts.
    device = gpu([("warm_up", 0.5, 0.25, 0), *KERNELS[:2], ("evaluate", 4.0, 1.0, 9), *KERNELS[2:]])
    host = _host((0, 1.0, 1.0), (1, 3.0, 1.0))
    launches = [(0.1, 1), (1.1, 2), (1.2, 3), (1.3, 4), (3.1, 5), (3.2, 6)]
    host.line(
        "Host Threads/7",
        [
            host.event("cuLaunchKernel", round(at * ONE_MS), 1000, correlation_id=number)
            for at, number in launches
        ],
    )
    steps = _steps(recorded(tmp_path, device, host))
    assert [(row.number, row.begin, row.end) for row in steps.rows] == [
        (0, 1 * ONE_MS, 5 * ONE_MS),
        (1, 6 * ONE_MS, round(9.5 * ONE_MS)),
    ]


def test_the_nth_execution_is_of_the_nth_call_where_nothing_else_ties_them(tmp_path):
    kernels = [("dot", 0.5, 0.25, 7), *KERNELS]
    host = _host((0, 1.0, 1.0), (1, 3.0, 1.0))
    # Each call holds a second one of its own name; the first is before the annotations.
    calls = [(0.0, 0.5), (0.1, 0.2), (1.1, 0.5), (1.2, 0.1), (3.1, 0.5), (3.2, 0.1)]
    host.line(
        "main",
        [
            host.event("PjitFunction(step)", round(at * ONE_MS), round(length * ONE_MS))
            for at, length in calls
        ],
    )
    steps = _steps(recorded(tmp_path, gpu(kernels), host))
    assert steps.source is StepSource.ANNOTATED
    assert [(row.number, row.begin) for row in steps.rows] == [(0, 1 * ONE_MS), (1, 6 * ONE_MS)]


def test_without_annotations_they_are_executions_of_the_longest_program(tmp_path):
    steps = _steps(recorded(tmp_path, gpu(KERNELS)))
    assert (steps.source, steps.name) == (StepSource.INFERRED, "jit_step")
    assert [row.number for row in steps.rows] == [0, 1]
    assert [row.host for row in steps.rows] == [None, None]


def test_without_ids_of_runs_an_operation_that_each_step_has_once_tells_them(tmp_path):
    kernels = [(name, begin, length, -1) for name, begin, length, _ in KERNELS]
    kernels.insert(1, ("loop", 1.0, 0.25, -1))
    kernels.insert(2, ("loop", 1.25, 0.25, -1))
    steps = _steps(recorded(tmp_path, gpu(kernels)))
    assert steps.source is StepSource.INFERRED
    assert [row.begin for row in steps.rows] == [1 * ONE_MS, 6 * ONE_MS]


def test_annotations_that_do_not_go_with_the_executions_are_not_believed(tmp_path):
    steps = _steps(recorded(tmp_path, gpu(KERNELS), _host(*((n, n, 0.5) for n in range(3)))))
    assert steps.source is StepSource.INFERRED
    assert len(steps.rows) == 2


def test_a_tpus_own_steps_are_taken(tmp_path):
    plane = PlaneWriter("/device:TPU:0")
    plane.line("Steps", [plane.event(str(n), n * ONE_MS, ONE_MS - 1000) for n in (3, 4)])
    text = "%fusion.1 = f32[8] fusion(p)"
    operations = [plane.event(text, n * ONE_MS, ONE_MS // 2) for n in (3, 4)]
    plane.describe(text, "fusion.1", hlo_category="loop fusion")
    plane.line("XLA Ops", operations)
    steps = _steps(recorded(tmp_path, plane))
    assert steps.source is StepSource.DEVICE
    assert [(row.number, row.busy) for row in steps.rows] == [(3, ONE_MS // 2), (4, ONE_MS // 2)]


def test_a_copy_that_names_no_run_is_no_step_of_its_own(tmp_path):
    steps = _steps(recorded(tmp_path, gpu([*KERNELS, ("copy", 4.0, 0.5, -1)])))
    assert len(steps.rows) == 2
