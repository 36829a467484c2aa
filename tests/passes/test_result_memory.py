"""Temporaries in the memory of results, by hand. One f32[256] is 1024 bytes."""

import pytest

from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space

KIB = 1024


@pytest.fixture
def ranges_of(session_of):
    return lambda text: session_of(text).get(LiveRanges)


def program(body: str, *, header: str = "", before: str = "") -> str:
    return f"HloModule m, is_scheduled=true{header}\n{before}\nENTRY e {{\n{body}\n}}"


def test_a_temporary_lies_in_a_result_that_is_not_written_yet(ranges_of):
    body = """
      p = f32[256] parameter(0)
      a = f32[256] reverse(p), dimensions={0}
      b = f32[8192] broadcast(a), dimensions={0}
      ROOT o = f32[%d] custom-call(b), custom_call_target="k"
    """
    # The block b is larger than the result; a fits into it and is dead when it is written.
    assert ranges_of(program(body % 256)).temporaries() == 32 * KIB
    assert ranges_of(program(body % 255)).temporaries() == 33 * KIB


def test_a_temporary_that_the_result_is_made_of_stays_apart(ranges_of):
    body = """
      p = f32[256] parameter(0)
      a = f32[256] reverse(p), dimensions={0}
      ROOT o = f32[256] %s
    """
    assert ranges_of(program(body % "reverse(a), dimensions={0}")).temporaries() == KIB
    # Element by element it is written over it.
    assert ranges_of(program(body % "negate(a)")).temporaries() == 0


def test_two_that_live_together_do_not_both_lie_there(ranges_of):
    ranges = ranges_of(
        program("""
          p = f32[256] parameter(0)
          a = f32[256] reverse(p), dimensions={0}
          b = f32[256] reverse(a), dimensions={0}
          c = f32[1] custom-call(a, b), custom_call_target="k"
          ROOT o = f32[256] custom-call(c), custom_call_target="k"
        """)
    )
    # One of a and b; c takes the place of neither.
    assert ranges.temporaries() in (KIB, KIB + 4)


def test_a_donated_argument_gives_room_between_its_last_use_and_its_result(ranges_of):
    body = """
      p = f32[256] parameter(0)
      s = f32[1] slice(p), slice={[0:1]}
      a = f32[256] broadcast(s), dimensions={}
      b = f32[1] custom-call(a), custom_call_target="k"
      ROOT o = f32[256] broadcast(b), dimensions={}
    """
    donated = ranges_of(program(body, header=", input_output_alias={ {}: (0, {}, may-alias) }"))
    assert [b.instruction.name for b in donated.alive()] == ["s"]
    # The same argument, read once more after a: a needs room of its own.
    again = body.replace("custom-call(a)", "custom-call(a, p)")
    aliased = ranges_of(program(again, header=", input_output_alias={ {}: (0, {}, may-alias) }"))
    assert "a" in [b.instruction.name for b in aliased.alive()]


def test_what_a_branch_returns_lies_in_the_result_of_the_program(ranges_of):
    branch = """
      {name} {{
        x = f32[256] parameter(0)
        ROOT r = f32[256] reverse(x), dimensions={{0}}
      }}
    """
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          k = s32[] parameter(1)
          ROOT c = f32[256] conditional(k, p, p), branch_computations={one, two}
        """,
            before=branch.format(name="one") + branch.format(name="two"),
        )
    )
    assert ranges.temporaries() == 0


def test_the_buffers_of_a_loop_lie_in_results_as_well(ranges_of):
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          k = s32[] parameter(1)
          a = f32[256] reverse(p), dimensions={0}
          t = (s32[], f32[256]) tuple(k, a)
          w = (s32[], f32[256]) while(t), condition=cond, body=body
          x = f32[256] get-tuple-element(w), index=1
          ROOT o = f32[1024] custom-call(x), custom_call_target="k"
        """,
            before="""
            body {
              s = (s32[], f32[256]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              x = f32[256] get-tuple-element(s), index=1
              big = f32[1024] broadcast(x), dimensions={0}
              y = f32[256] custom-call(big, x), custom_call_target="k"
              ROOT r = (s32[], f32[256]) tuple(i, y)
            }
            cond {
              s = (s32[], f32[256]) parameter(0)
              i = s32[] get-tuple-element(s), index=0
              n = s32[] constant(8)
              ROOT c = pred[] compare(i, n), direction=LT
            }
            """,
        )
    )
    # Only a, which is read when the result is written.
    assert ranges.temporaries() == KIB


def test_a_temporary_in_another_memory_does_not_lie_there(ranges_of):
    tiled = "{0:T(256)}"
    ranges = ranges_of(
        program(f"""
          p = f32[256]{tiled} parameter(0)
          a = f32[256]{{0:T(256)S(1)}} reverse(p), dimensions={{0}}
          b = f32[8192]{tiled} broadcast(a), dimensions={{0}}
          ROOT o = f32[256]{tiled} custom-call(b), custom_call_target="k"
        """)
    )
    assert [b.instruction.name for b in ranges.alive(Space.ON_CHIP)] == ["a"]
