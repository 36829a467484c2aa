"""Where the heap puts buffers, and how large its block gets."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloscope.chips import parse_target
from hloscope.errors import Unavailable
from hloscope.passes import heap_block
from hloscope.passes.heap_block import BY_SIZE, IN_ORDER, HeapBlock, needed_memory, place
from hloscope.passes.lifetimes import Lifetime, find_lifetimes
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import MemoryUse

KIB = 1024


def buffers(most: int = 12):
    moment = st.integers(0, 20)
    return st.lists(
        st.tuples(moment, moment, st.integers(1, 200)).map(
            lambda one: Lifetime(min(one[:2]), max(one[:2]), one[2])
        ),
        max_size=most,
    )


@given(buffers(), st.sampled_from((1, 64)), st.randoms(use_true_random=False))
def test_what_lives_together_lies_apart(lifetimes, alignment, random):
    order = list(range(len(lifetimes)))
    random.shuffle(order)
    placement = place(lifetimes, order, alignment)
    ends = [offset + one.size for offset, one in zip(placement.offsets, lifetimes, strict=True)]
    assert placement.size == max(ends, default=0)
    assert all(offset % alignment == 0 for offset in placement.offsets)
    for one, other in combinations(range(len(lifetimes)), 2):
        a, b = lifetimes[one], lifetimes[other]
        if a.first <= b.last and b.first <= a.last:
            assert ends[one] <= placement.offsets[other] or ends[other] <= placement.offsets[one]


def test_a_buffer_takes_the_smallest_gap_that_is_wide_enough():
    # Three pillars that live throughout, with gaps of 30 and 20 between them, then a 15.
    lifetimes = [
        *(Lifetime(0, 0, 30), Lifetime(0, 0, 20)),
        *(Lifetime(0, 9, 10), Lifetime(0, 9, 10), Lifetime(0, 9, 10)),
        Lifetime(5, 6, 15),
    ]
    placement = place(lifetimes, [2, 0, 3, 1, 4, 5], 1)
    assert placement.offsets[:5] == (10, 50, 0, 40, 70)
    assert placement.offsets[5] == 50
    assert placement.size == 80


def test_a_buffer_lies_in_the_hole_of_another():
    holed = Lifetime(0, 9, 100, holes=((3, 5),))
    assert holed.parts() == [(0, 2), (6, 9)]
    assert place([holed, Lifetime(3, 5, 80)], [0, 1], 1).size == 100
    assert place([holed, Lifetime(2, 5, 80)], [0, 1], 1).size == 180


GAPS = """HloModule m, is_scheduled=true
ENTRY e {
  p = f32[256] parameter(0)
  a = f32[500] custom-call(p), custom_call_target="k"
  b = f32[300] custom-call(a), custom_call_target="k"
  c = f32[600] custom-call(b), custom_call_target="k"
  ROOT o = f32[1] custom-call(c), custom_call_target="k"
}
"""


@pytest.mark.parametrize(
    ("target", "alignment", "size"),
    # c at 0; a at 0 as well; b above both, at the next multiple of the alignment.
    [("cpu", 64, 2432 + 1200), ("h100", 256, 2560 + 1200)],
)
def test_offsets_are_aligned_as_the_target_asks_for(target, alignment, size, session_of):
    session = session_of(GAPS, parse_target(target).chip)
    block = session.get(HeapBlock)
    assert (block.alignment, block.size, block.model) == (alignment, size, BY_SIZE)
    assert block.alive == 4 * (300 + 600)
    assert block.gaps == size - block.alive
    assert block.reported == block.size
    use = session.get(MemoryUse)
    assert needed_memory(use, block) == use.resident + size
    assert needed_memory(use, None) == use.peak


def test_a_tpu_counts_the_gaps_twice_and_keeps_a_table_for_each_tuple(session_of):
    text = """HloModule m, is_scheduled=true
    ENTRY e {
      p = f32[8192]{0:T(1024)} parameter(0)
      a = f32[5000]{0:T(1024)} custom-call(p), custom_call_target="k"
      b = (f32[8192]{0:T(1024)}, f32[8192]{0:T(1024)}) custom-call(a), custom_call_target="k"
      g = f32[8192]{0:T(1024)} get-tuple-element(b), index=0
      h = f32[8192]{0:T(1024)} get-tuple-element(b), index=1
      c = f32[1024]{0:T(1024)} custom-call(g, h), custom_call_target="k"
      ROOT o = f32[1]{0:T(128)} custom-call(c), custom_call_target="k"
    }
    """
    block = session_of(text).get(HeapBlock)
    # a (20 KiB) beside both of b (32 KiB each); a takes two steps of 16 KiB, the table one.
    assert block.model == IN_ORDER
    assert block.alive == (20 + 32 + 32) * KIB
    assert block.size == (32 + 32 + 32) * KIB + 16 * KIB
    assert block.reported == 2 * block.size - block.alive - 512


def test_the_whole_program_has_one_clock(session_of):
    text = """HloModule m, is_scheduled=true
    callee {
      x = f32[256] parameter(0)
      i = f32[512] custom-call(x), custom_call_target="k"
      ROOT r = f32[256] custom-call(i), custom_call_target="k"
    }
    ENTRY e {
      p = f32[256] parameter(0)
      before = f32[300] custom-call(p), custom_call_target="k"
      a = f32[256] custom-call(before), custom_call_target="k"
      c = f32[256] call(a), to_apply=callee
      after = f32[400] custom-call(c), custom_call_target="k"
      ROOT o = f32[1] custom-call(after), custom_call_target="k"
    }
    """
    ranges = session_of(text).get(LiveRanges)
    spans = {one.size: one for one in find_lifetimes(ranges, Space.DEVICE)}
    inside, before, after = spans[2048], spans[1200], spans[1600]
    assert before.last < inside.first <= inside.last < after.first


def test_what_runs_twice_counts_with_its_peak_each_time(session_of):
    text = """HloModule m, is_scheduled=true
    callee {
      x = f32[256] parameter(0)
      i = f32[512] custom-call(x), custom_call_target="k"
      ROOT r = f32[256] custom-call(i), custom_call_target="k"
    }
    ENTRY e {
      p = f32[256] parameter(0)
      c = f32[256] call(p), to_apply=callee
      d = f32[256] call(c), to_apply=callee
      ROOT o = f32[1] custom-call(d), custom_call_target="k"
    }
    """
    spans = find_lifetimes(session_of(text).get(LiveRanges), Space.DEVICE)
    inside = [one for one in spans if one.size == 3072]  # i, and r while it runs
    assert len(inside) == 2
    assert inside[0].last < inside[1].first


def test_more_buffers_than_are_laid_out_are_said_to_be(session_of, monkeypatch):
    monkeypatch.setattr(heap_block, "MOST_BUFFERS", 2)
    with pytest.raises(Unavailable, match="3 temporaries are more than the 2"):
        session_of(GAPS).get(HeapBlock)


def test_sizes_beyond_any_machine_are_refused(session_of):
    text = GAPS.replace("f32[500]", "f32[1073741824,1073741824]")
    assert session_of(text).get(MemoryUse).peak > 2**62
    with pytest.raises(Unavailable, match="address space"):
        session_of(text).get(HeapBlock)
