"""Carried arrays whose place holds nothing for a while. One f32[256] is 1024 bytes."""

import pytest

from hloscope.passes.heap_block import HeapBlock
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space

KIB = 1024

LOOP = """HloModule m, is_scheduled=true
body {{
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[256] get-tuple-element(s), index=1
  small = f32[2] slice(x), slice={{[0:2]}}
  big = f32[1024] custom-call(small{again}), custom_call_target="k"
  y = f32[256] custom-call(big), custom_call_target="k"
  ROOT r = (s32[], f32[256]) tuple(i, y)
}}
cond {{
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  p = f32[256] parameter(0)
  k = s32[] parameter(1)
  a = f32[256] reverse(p), dimensions={{0}}
  t = (s32[], f32[256]) tuple(k, a)
  w = (s32[], f32[256]) while(t), condition=cond, body=body
  x = f32[256] get-tuple-element(w), index=1
  ROOT o = f32[1] custom-call(x), custom_call_target="k"
}}
"""


@pytest.mark.parametrize(
    ("again", "under_big", "peak", "alive"),
    [
        # Under big nothing is in the place of x: it was read, and y is not written.
        ("", 4 * KIB + 8 - KIB, 4 * KIB + KIB, {"big", "a"}),
        # Read under big once more.
        (", x", 4 * KIB + 8, 4 * KIB + 8 + KIB, {"big", "a", "small"}),
    ],
)
def test_the_place_of_a_carried_array_is_free_between_reading_and_writing(
    again, under_big, peak, alive, session_of
):
    session = session_of(LOOP.format(again=again))
    ranges = session.get(LiveRanges)
    body = next(frame for frame in ranges.frames if frame.computation.name == "body")
    # What the caller holds, a, is counted there: within the body its absence.
    assert body.profiles[Space.DEVICE].live[body.computation["big"].index] == under_big
    assert ranges.temporaries() == peak
    assert {b.instruction.name for b in ranges.alive()} == alive
    assert sum(b.size for b in ranges.alive()) == peak
    assert session.get(HeapBlock).size >= peak
