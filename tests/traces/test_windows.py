"""Which part of a recording counts: all of it, steady state, or chosen steps."""

import pytest
from oracles.recorded import ONE_MS, gpu, recorded

from hloscope.errors import UsageError
from hloscope.traces.summary import summarize
from hloscope.traces.windows import WindowChoice


def _started_up(steps=19, gaps=(1.5, 1.5)):
    """Steps of 0.7 ms one behind the other, the first ones with a gap behind each."""
    kernels, at = [], 0.0
    for step in range(steps):
        kernels += [("fusion", at, 0.3, step), ("dot", at + 0.3, 0.4, step)]
        at += 0.7 + (gaps[step] if step < len(gaps) else 0.0)
    return gpu(kernels)


def test_steady_state_is_told_from_a_start_with_gaps(tmp_path):
    # 19 steps of 0.7 ms and 3 ms of gaps: 13.3 of 16.3 ms are busy, 81.6%.
    (device,) = summarize(recorded(tmp_path, _started_up())).devices
    assert device.whole.busy / device.whole.window.length == pytest.approx(13.3 / 16.3)
    assert device.steady is not None
    assert device.steady.busy == device.steady.window.length == 11_900_000_000
    assert device.windows.chosen.name == "steady state"
    assert device.parts == device.steady


def test_gaps_within_the_first_steps_are_a_start_as_well(tmp_path):
    kernels = [("fusion", 0.0, 0.3, 0), ("dot", 3.0, 0.4, 0)]
    for step in range(1, 8):
        at = 3.4 + (step - 1) * 0.7
        kernels += [("fusion", at, 0.3, step), ("dot", at + 0.3, 0.4, step)]
    (device,) = summarize(recorded(tmp_path, gpu(kernels))).devices
    assert device.steady is not None
    assert device.steady.window.begin == pytest.approx(3.4 * ONE_MS)


def test_what_is_idle_later_is_part_of_how_a_program_runs(tmp_path):
    kernels, at = [], 0.0
    for step in range(12):
        kernels += [("fusion", at, 0.3, step), ("dot", at + 0.3, 0.4, step)]
        at += 2.0 if step in (0, 7) else 0.7
    (device,) = summarize(recorded(tmp_path, gpu(kernels))).devices
    assert device.steady is not None
    assert device.steady.window.begin == 2.0 * ONE_MS
    assert device.steady.idle == pytest.approx(1.3 * ONE_MS)


def test_of_three_steps_none_is_called_steady(tmp_path):
    recording = recorded(tmp_path, _started_up(steps=3))
    (device,) = summarize(recording).devices
    assert device.steady is None
    assert device.windows.chosen == device.windows.whole
    host = summarize(recording, WindowChoice("steady"))
    assert host.notes[-1] == (
        "GPU 0: no steady state is known with fewer than four steps: all is counted"
    )


def test_steps_can_be_chosen_by_their_numbers(tmp_path):
    recording = recorded(tmp_path, _started_up())
    (device,) = summarize(recording, WindowChoice.parse("3-4")).devices
    assert device.windows.chosen.name == "steps 3-4"
    assert device.parts.window.length == pytest.approx(1.4 * ONE_MS)
    assert device.tallies["op"]["dot"].number == 2
    assert device.tallies["op"]["dot"].time == pytest.approx(0.8 * ONE_MS)


def test_steps_that_there_are_not_are_said(tmp_path):
    host = summarize(recorded(tmp_path, _started_up()), WindowChoice.parse("40"))
    (note,) = host.notes
    assert note == "GPU 0: no step 40 to 40 (its steps are 0 to 18): all is counted"


@pytest.mark.parametrize("text", ["", "9-3", "last", "-1", "3-", "1-2-3", "9" * 40])
def test_what_is_no_window_is_refused(text):
    with pytest.raises(UsageError, match="is no window"):
        WindowChoice.parse(text)


def test_other_work_between_steps_is_no_start(tmp_path):
    # An evaluation of 3 ms behind the first step: the device works all the time.
    kernels = [("fusion", 0.0, 0.7, 0)]
    kernels += [("fusion", 3.7 + 0.7 * step, 0.7, step + 1) for step in range(7)]
    other = gpu([("evaluate", 0.7, 3.0, 0)], module="jit_evaluate", program=8)
    (device,) = summarize(recorded(tmp_path, gpu(kernels), other)).devices
    assert device.steps.rows[1].begin - device.steps.rows[0].end == 3 * ONE_MS
    assert [row.gap for row in device.steps.rows] == [0] * 8
    assert device.steady is None
