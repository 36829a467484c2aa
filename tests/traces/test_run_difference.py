"""Two runs whose difference is known because both are written here."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import US, run

from hloscope.traces.compared import Spread, spread_of
from hloscope.traces.reading import read_trace
from hloscope.traces.run_difference import RunDifference
from hloscope.traces.windows import WindowChoice

ALL = WindowChoice("all")


@pytest.fixture
def read(tmp_path):
    def write(name, *devices, **options):
        path = tmp_path / f"{name}.xplane.pb"
        path.write_bytes(run(*devices, **options))
        return read_trace(path, choice=ALL, compared=True)

    return write


def steps(number, every, *work):
    """So many equal steps; what each runs as (stream, kernel, operation, offset, duration)."""
    return [(step * every, list(work)) for step in range(number)]


def before_and_after(read):
    # A step of 100 us, then one of 130 us: an all-reduce is 20 us longer and hidden as little
    # as before, a transpose of 10 us is new, and a memset of 5 us is gone from within idle time.
    first = steps(
        6,
        100,
        (1, "loop_add_fusion_3", "loop_add_fusion.3", 0, 40),
        (2, "ncclDevKernel_AllReduce_Sum", "all-reduce.1", 30, 30),
        (1, "nvjet_hsh_128x256", "gemm.1", 60, 30),
        (1, "Memset", "", 92, 5),
    )
    second = steps(
        8,
        130,
        (1, "loop_add_fusion_7", "loop_add_fusion.7", 0, 40),
        (2, "ncclDevKernel_AllReduce_Sum", "all-reduce.1", 30, 50),
        (1, "nvjet_hsh_64x256", "gemm.1", 80, 30),
        (1, "wrapped_transpose", "wrapped_transpose.1", 110, 10),
    )
    return RunDifference(read("before", first, first), read("after", second, second))


def test_the_median_step_is_from_end_to_end_and_its_difference_is_told_from_noise(read):
    verdict = before_and_after(read).verdict
    assert (verdict.before, verdict.after) == (100 * US, 130 * US)
    assert verdict.share == pytest.approx(0.3)
    assert verdict.apart is True


def test_parts_of_a_step_are_those_that_were_written(read):
    found = before_and_after(read)
    # The last of six steps ends with the memset at 597 us, the last of eight at 1030 us.
    assert found.part(lambda parts: parts.window.length) == (
        pytest.approx(597 / 6 * US),
        pytest.approx(1030 / 8 * US),
    )
    assert found.part(lambda parts: parts.compute) == (70 * US, 80 * US)
    assert found.part(lambda parts: parts.exposed_communication) == (20 * US, 40 * US)
    assert found.part(lambda parts: parts.hidden_communication) == (10 * US, 10 * US)
    assert found.part(lambda parts: parts.exposed_copies) == (5 * US, 0)


def test_families_are_matched_over_their_variants_and_say_what_is_new_and_gone(read):
    rows = {row.key: row for row in before_and_after(read).families.rows}
    assert rows["ncclDevKernel_AllReduce"].change == 20 * US
    assert rows["ncclDevKernel_AllReduce"].apart is True
    assert rows["wrapped_transpose"].before is None
    assert rows["wrapped_transpose"].after == 10 * US
    assert rows["Memset"].after is None
    for same in ("loop_add_fusion", "nvjet"):
        assert (rows[same].change, rows[same].worth_saying) == (0, False)


def test_operations_without_hlo_are_matched_when_only_their_numbers_shift(read):
    rows = {row.key.name: row for row in before_and_after(read).operations.rows}
    assert rows["loop_add_fusion"].change == 0
    assert rows["all-reduce.1"].change == 20 * US
    assert "loop_add_fusion.7" not in rows


def test_a_step_is_compared_under_another_name_as_well(read):
    work = steps(4, 100, (1, "fusion_1", "fusion.1", 0, 90))
    found = RunDifference(read("one", work), read("two", work, module="jit_renamed"))
    (row,) = found.operations.rows
    assert (row.before, row.after) == (90 * US, 90 * US)


def test_rows_idle_time_and_overlap_close_on_the_change_of_the_whole(read):
    found = before_and_after(read)
    idle = found.part(lambda parts: parts.idle)
    whole = found.part(lambda parts: parts.window.length)
    for changes in (found.categories, found.families, found.operations):
        listed = sum(row.change for row in changes.rows)
        assert listed + (idle[1] - idle[0]) + changes.overlap == pytest.approx(whole[1] - whole[0])
        # Ten microseconds of either step lie behind compute.
        assert changes.overlap == pytest.approx(0)


def test_a_run_against_itself_has_no_difference(read):
    one = read("one", steps(5, 100, (1, "fusion_1", "fusion.1", 0, 90)))
    found = RunDifference(one, one)
    assert found.verdict.before == found.verdict.after
    for changes in (found.categories, found.families, found.operations):
        assert changes.rows
        assert not any(row.worth_saying for row in changes.rows)
        assert changes.overlap == 0


def test_what_varies_from_step_to_step_by_more_than_it_changed_is_noise(read):
    def uneven(longer):
        at, found = 0, []
        for step in range(6):
            duration = 50 + 10 * (step % 2) + longer
            found.append((at, [(1, "fusion_1", "fusion.1", 0, duration)]))
            at += duration + 10
        return found

    found = RunDifference(read("one", uneven(0)), read("two", uneven(5)))
    assert found.verdict.apart is False
    assert found.verdict.after - found.verdict.before == 5 * US
    (row,) = found.families.rows
    assert (row.change, row.apart) == (5 * US, False)
    # More than the ten microseconds by which steps vary.
    found = RunDifference(read("one", uneven(0)), read("three", uneven(15)))
    assert found.verdict.apart is True
    assert found.families.rows[0].apart is True


def test_with_few_steps_it_is_not_known_whether_a_difference_is_noise(read):
    work = (1, "fusion_1", "fusion.1", 0, 90)
    found = RunDifference(read("one", steps(2, 100, work)), read("two", steps(2, 200, work)))
    assert found.verdict.apart is None
    assert (found.verdict.before, found.verdict.after) == (100 * US, 200 * US)


def test_without_steps_in_one_run_windows_are_compared(read):
    work = (1, "fusion_1", "fusion.1", 0, 90)
    copies = [(0, [(1, "MemcpyH2D", "", 0, 45)])]
    found = RunDifference(read("one", steps(3, 100, work)), read("two", copies))
    assert (found.by_step, found.verdict) == (False, None)
    assert found.part(lambda parts: parts.window.length) == (290 * US, 45 * US)


def test_of_several_devices_means_are_of_one_devices_step(read):
    slow = (1, "fusion_1", "fusion.1", 0, 80)
    fast = (1, "fusion_1", "fusion.1", 0, 40)
    one = read("one", steps(4, 100, fast), steps(4, 100, fast))
    two = read("two", steps(4, 100, fast), steps(4, 100, slow))
    (row,) = RunDifference(one, two).families.rows
    assert (row.before, row.after) == (40 * US, 60 * US)


def test_one_slow_step_of_many_is_no_spread():
    assert spread_of([10.0] * 19 + [500.0]) == Spread(10.0, 10.0, 10.0)
    assert spread_of([10.0, 12.0, 50.0]) == Spread(12.0, 10.0, 50.0)
    assert spread_of([10.0, 12.0]) is None


@given(
    st.lists(st.floats(0, 1e12), min_size=3, max_size=30),
    st.lists(st.floats(0, 1e12), min_size=3, max_size=30),
)
def test_runs_are_apart_whichever_comes_first(one, other):
    spreads = spread_of(one), spread_of(other)
    assert spreads[0].apart(spreads[1]) == spreads[1].apart(spreads[0])
    assert not spreads[0].apart(spreads[0])


@pytest.fixture
def recorded(fixtures_dir):
    path = fixtures_dir / "xplane" / "amd_mi355x_te_fused_attention.xplane.pb"
    return read_trace(path, compared=True)


def moved(trace, by):
    """The same run of a file with so many lines more above the step."""

    def line(operation):
        file, _, number = operation.source.partition(":")
        return replace(operation, source=f"{file}:{int(number) + by}") if number else operation

    (host,) = trace.hosts
    (device,) = host.devices
    operations = {line(key): value for key, value in device.compared.operations.items()}
    compared = replace(device.compared, operations=operations)
    return replace(trace, hosts=(replace(host, devices=(replace(device, compared=compared),)),))


def test_an_operation_is_found_again_by_its_name_in_the_program_when_lines_shift(recorded):
    unchanged = RunDifference(recorded, recorded).operations.rows
    named = [row.key for row in unchanged if row.key.embedded]
    assert any(key.name.endswith("/dot_general") and key.source for key in named)
    shifted = RunDifference(recorded, moved(recorded, 3)).operations.rows
    assert len(shifted) <= len(unchanged)
    for row in shifted:
        assert row.before == row.after
        assert not row.worth_saying
    total = sum(row.before for row in unchanged)
    assert sum(row.before for row in shifted) == pytest.approx(total)


def test_devices_that_differ_from_each_other_do_not_hide_what_changed_on_all(read):
    # One device waits in each exchange for the other, 60 us against 10 us; then 80 against 20.
    # Neither varies from step to step: the mean is 35 us, and then 50 us.
    def exchanging(length):
        return steps(6, 100, (2, "ncclDevKernel_AllReduce_Sum", "all-reduce.1", 0, length))

    difference = RunDifference(
        read("before", exchanging(60), exchanging(10)),
        read("after", exchanging(80), exchanging(20)),
    )
    (change,) = difference.categories.rows
    assert (change.before, change.after) == (35 * US, 50 * US)
    assert change.apart is True
    assert change.worth_saying
