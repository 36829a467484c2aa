"""What the schedule hides of an exchange, by arithmetic that is written out here."""

from __future__ import annotations

import pytest

from hloscope.chips import parse_target
from hloscope.errors import Unavailable
from hloscope.passes.overlap import Overlap

CHIP = parse_target("h100").chip
RATE = CHIP.link_bandwidth_one_way

SUM = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
SIZE = 1 << 24  # elements of four bytes


def program(body: str, scheduled: bool = True) -> str:
    flag = ", is_scheduled=true" if scheduled else ""
    return (
        f"HloModule m{flag}, num_partitions=8\n{SUM}\n"
        f"ENTRY e {{\n p = f32[{SIZE}] parameter(0)\n q = f32[{SIZE}] parameter(1)\n{body}\n}}"
    )


def copy(name: str, operand: str = "q") -> str:
    return f" {name} = f32[{SIZE}] negate({operand})\n"


GROUPS = (
    "channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=add"
)
START = f" s = f32[{SIZE}] all-reduce-start(p), {GROUPS}\n"
DONE = f" d = f32[{SIZE}] all-reduce-done(s)\n"
END = f" ROOT r = f32[{SIZE}] add(d, n)"

LINK = 2 * 4 * SIZE * 7 / 8 / RATE  # a ring of eight
WORK = 2 * 4 * SIZE / CHIP.memory_bandwidth  # read once, written once


@pytest.fixture
def overlap(session_of):
    return lambda text: session_of(text, CHIP).get(Overlap)


def test_what_is_waited_for_at_once_is_exposed_as_a_whole(overlap):
    (row,) = overlap(program(f" d = f32[{SIZE}] all-reduce(p), {GROUPS}\n{copy('n')}{END}")).rows
    assert row.seconds == pytest.approx(LINK)
    assert row.exposed == pytest.approx(LINK)
    assert row.launches == 0


def test_work_between_start_and_end_hides_as_long_as_it_lasts(overlap):
    (row,) = overlap(program(START + copy("n") + DONE + END)).rows
    assert row.beside == pytest.approx(WORK)
    assert row.exposed == pytest.approx(LINK - WORK)
    assert row.launches == 1
    assert row.end.name == "d"


def test_a_start_that_the_compiler_made_synchronous_hides_nothing(overlap):
    config = ', backend_config={"collective_backend_config":{"is_sync":true}}'
    (row,) = overlap(program(START.rstrip() + config + "\n" + copy("n") + DONE + END)).rows
    assert not row.collective.asynchronous
    assert row.exposed == pytest.approx(LINK)
    assert row.launches == 0


def test_enough_work_hides_all_of_it(overlap):
    many = int(LINK / WORK) + 1
    lines = copy("n0") + "".join(copy(f"n{k}", f"n{k - 1}") for k in range(1, many))
    (row,) = overlap(program(START + lines + DONE + END.replace(", n)", f", n{many - 1})"))).rows
    assert row.exposed == 0
    assert row.beside == pytest.approx(many * WORK)


def test_work_before_the_start_and_behind_the_end_hides_nothing(overlap):
    text = program(copy("n") + START + DONE + copy("n2", "n") + END.replace(", n)", ", n2)"))
    (row,) = overlap(text).rows
    assert row.exposed == pytest.approx(LINK)
    assert row.beside == 0


def test_two_exchanges_at_once_share_the_links_and_the_work(overlap):
    second = f" s2 = f32[{SIZE}] all-reduce-start(q), {GROUPS.replace('=1', '=2', 1)}\n"
    second_done = f" d2 = f32[{SIZE}] all-reduce-done(s2)\n"
    end = f" x = f32[{SIZE}] add(d, n)\n ROOT r = f32[{SIZE}] add(x, d2)"
    both = overlap(program(START + second + copy("n") + DONE + second_done + end))
    first, other = both.rows
    assert first.exposed == pytest.approx(LINK - WORK)
    assert other.exposed == pytest.approx(LINK)  # the first took all of the work
    assert both.exposed_seconds == pytest.approx(2 * LINK - WORK)
    assert both.link_seconds == pytest.approx(2 * LINK)


def test_a_loop_beside_an_exchange_counts_with_all_its_runs(overlap):
    loop = f"""
 c = s32[] constant(0)
 i = (s32[], f32[{SIZE}]) tuple(c, q)
 w = (s32[], f32[{SIZE}]) while(i), condition=cond, body=body
 n = f32[{SIZE}] get-tuple-element(w), index=1
"""
    computations = f"""
cond {{
 v = (s32[], f32[{SIZE}]) parameter(0)
 k = s32[] get-tuple-element(v), index=0
 l = s32[] constant(3)
 ROOT t = pred[] compare(k, l), direction=LT
}}
body {{
 v = (s32[], f32[{SIZE}]) parameter(0)
 k = s32[] get-tuple-element(v), index=0
 one = s32[] constant(1)
 k1 = s32[] add(k, one)
 x = f32[{SIZE}] get-tuple-element(v), index=1
 y = f32[{SIZE}] negate(x)
 ROOT o = (s32[], f32[{SIZE}]) tuple(k1, y)
}}
"""
    text = program(START + loop + DONE + END).replace("ENTRY", computations + "ENTRY")
    (row,) = overlap(text).rows
    # The counter's few bytes come on top.
    assert row.beside == pytest.approx(3 * WORK, rel=1e-3)
    assert row.exposed == pytest.approx(LINK - 3 * WORK, rel=1e-2)


def test_an_exchange_that_ends_in_another_run_of_a_loop_is_unknown_not_hidden(overlap):
    (row,) = overlap(program(START + copy("n") + f" ROOT r = f32[{SIZE}] negate(n)")).rows
    assert row.exposed is None
    assert "another run" in row.note


def test_before_a_schedule_nothing_is_claimed(overlap):
    (row,) = overlap(program(START + copy("n") + DONE + END, scheduled=False)).rows
    assert row.exposed is None
    assert "not scheduled" in row.note


def test_without_a_chip_there_are_no_times(session_of):
    with pytest.raises(Unavailable):
        session_of(program(START + copy("n") + DONE + END)).get(Overlap)


@pytest.mark.parametrize(
    ("name", "chip", "ends"),
    [
        ("tpu_m_scan_fsdp", "v5e", 3),  # asynchronous fusions
        ("gpu_m_scan_lhs", "h100", 4),  # starts and ends
        ("gpu_m_scan_syncoff", "h100", 0),  # none of them asynchronous
        ("tpu_m_pipe", "v5e", 1),
    ],
)
def test_recorded_modules_have_their_ends_found(session_of, fixtures_dir, name, chip, ends):
    text = (fixtures_dir / "compiled" / "today" / f"{name}.hlo").read_text()
    rows = session_of(text, parse_target(chip).chip).get(Overlap).rows
    assert sum(row.end is not None for row in rows) == ends
    assert all(row.end is not None for row in rows if row.collective.asynchronous)
    assert all(0 <= row.exposed <= row.seconds for row in rows)


def test_the_exchanges_of_a_large_recorded_step_are_nearly_all_hidden(session_of, fixtures_dir):
    """Every start of that module has its end, the calls on the sparse core too."""
    text = (fixtures_dir / "hlo" / "tpu_v6e8_llama3_8b_train_step.hlo").read_text()
    overlap = session_of(text, parse_target("v6e").chip).get(Overlap)
    assert not overlap.unknown
    waiting = [row for row in overlap.rows if row.collective.asynchronous]
    assert len(waiting) == 30
    assert all(row.end is not None for row in waiting)
    assert 0 < overlap.exposed_seconds < 0.1 * overlap.link_seconds
