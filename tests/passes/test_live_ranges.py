"""Small scheduled modules whose peaks are written out by hand. One f32[256] is 1024 bytes."""

import pytest

from hloscope.errors import Unavailable
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space

KIB = 1024


@pytest.fixture
def ranges_of(session_of):
    return lambda text: session_of(text).get(LiveRanges)


def program(body: str, *, header: str = "", before: str = "") -> str:
    return f"HloModule m, is_scheduled=true{header}\n{before}\nENTRY e {{\n{body}\n}}"


def test_a_buffer_lives_from_its_definition_to_its_last_use(ranges_of):
    ranges = ranges_of(
        program("""
          p = f32[256] parameter(0)
          a = f32[256] negate(p)
          b = f32[512] concatenate(a, p), dimensions={0}
          c = f32[512] reverse(b), dimensions={0}
          ROOT d = f32[1] slice(c), slice={[0:1]}
        """)
    )
    # a | a+b | b+c | c; the result d is no temporary
    assert list(ranges.entry.profiles[Space.DEVICE].live)[1:5] == [
        1 * KIB,
        3 * KIB,
        4 * KIB,
        2 * KIB,
    ]
    assert ranges.temporaries() == 4 * KIB
    assert [b.instruction.name for b in ranges.alive()] == ["b", "c"]
    assert [(b.instruction.name, b.size) for b in ranges.parameters] == [("p", KIB)]
    assert [(b.instruction.name, b.size) for b in ranges.outputs] == [("d", 4)]


def test_elementwise_work_overwrites_an_operand_that_dies(ranges_of):
    body = """
      p = f32[256] parameter(0)
      a = f32[256] reverse(p), dimensions={0}
      b = f32[256] fusion(a), kind=kLoop, calls=inner
      ROOT o = f32[1] custom-call(%s), custom_call_target="k"
    """
    inner = """inner {
      x = f32[256] parameter(0)
      y = f32[256] exponential(x)
      ROOT z = f32[256] multiply(x, y)
    }"""
    assert ranges_of(program(body % "b, b", before=inner)).temporaries() == KIB
    # Here a is read once more, so b needs room of its own.
    assert ranges_of(program(body % "a, b", before=inner)).temporaries() == 2 * KIB
    # And here the last element is needed when the first is written.
    backwards = inner.replace("exponential(x)", "reverse(x), dimensions={0}")
    assert ranges_of(program(body % "b, b", before=backwards)).temporaries() == 2 * KIB


def test_a_sort_writes_over_its_keys_and_values(ranges_of):
    body = """
      p = f32[256] parameter(0)
      k = f32[256] custom-call(p), custom_call_target="k"
      v = f32[256] custom-call(p), custom_call_target="k"
      s = (f32[256], f32[256]) sort(k, v), dimensions={0}, to_apply=less
      a = f32[256] get-tuple-element(s), index=0
      b = f32[256] get-tuple-element(s), index=1
      ROOT o = f32[1] custom-call(a, b%s), custom_call_target="k"
    """
    less = """less {
      w = f32[] parameter(0)
      x = f32[] parameter(1)
      y = f32[] parameter(2)
      z = f32[] parameter(3)
      ROOT c = pred[] compare(w, x), direction=LT
    }"""
    assert ranges_of(program(body % "", before=less)).temporaries() == 2 * KIB
    # The keys are read once more.
    assert ranges_of(program(body % ", k", before=less)).temporaries() == 3 * KIB


def test_memory_inside_the_core_is_not_written_over(ranges_of):
    body = """
      p = f32[1024]{0:T(1024)} parameter(0)
      a = f32[1024]{0:T(1024)%s} custom-call(p), custom_call_target="k"
      b = f32[1024]{0:T(1024)%s} negate(a)
      ROOT o = f32[1]{0:T(128)} custom-call(b), custom_call_target="k"
    """
    assert ranges_of(program(body % ("", ""))).temporaries() == 4 * KIB
    inside = ranges_of(program(body % ("S(1)", "S(1)")))
    assert inside.temporaries(Space.ON_CHIP) == 8 * KIB


def test_what_runs_beside_the_entry_counts_until_its_end(ranges_of):
    body = """
      p = f32[256] parameter(0)
      s = ((f32[256]), f32[256], u32[]) async-start(p), calls=beside
      a = f32[1024] custom-call(p), custom_call_target="k"
      d = f32[256] async-done(s)
      ROOT o = f32[1] custom-call(%s), custom_call_target="k"
    """
    beside = """beside {
      x = f32[256] parameter(0)
      t = f32[512] custom-call(x), custom_call_target="k"
      ROOT r = f32[256] custom-call(t), custom_call_target="k"
    }"""
    # Under a: a, the result that the start holds, and what runs beside; the start's
    # flag lies in the four bytes of the program's result.
    ranges = ranges_of(program(body % "a, d", before=beside))
    assert ranges.temporaries() == (4 + 1 + 2) * KIB
    assert {"a", "s", "t"} <= {b.instruction.name for b in ranges.alive()}


def test_names_take_no_memory_and_keep_what_they_name(ranges_of):
    ranges = ranges_of(
        program("""
          p = f32[256] parameter(0)
          a = f32[256] negate(p)
          v = f32[16,16] bitcast(a)
          t = (f32[16,16], f32[256]) tuple(v, p)
          b = f32[512] concatenate(p, p), dimensions={0}
          g = f32[16,16] get-tuple-element(t), index=0
          s = f32[16,16] negate(g)
          r = f32[512] negate(b)
          ROOT o = f32[] constant(0)
        """)
    )
    # Under s: a through two names, b, s.
    assert ranges.temporaries() == (1 + 2 + 1) * KIB


def test_an_aliased_result_lies_in_its_parameter(ranges_of):
    body = """
      p = f32[256] parameter(0)
      ROOT a = f32[256] negate(p)
    """
    aliased = ranges_of(program(body, header=", input_output_alias={ {}: (0, {}, may-alias) }"))
    assert (aliased.temporaries(), aliased.outputs, aliased.aliased_bytes) == (0, (), KIB)
    plain = ranges_of(program(body))
    assert ([b.size for b in plain.outputs], plain.aliased_bytes) == ([KIB], 0)


def test_an_update_in_place_writes_into_its_operand(ranges_of):
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          u = f32[1] parameter(1)
          k = s32[] parameter(2)
          a = f32[256] negate(p)
          b = f32[256] dynamic-update-slice(a, u, k)
          c = f32[256] fusion(b, u, k), kind=kLoop, calls=update
          ROOT o = f32[1] slice(c), slice={[0:1]}
        """,
            before="""update {
              x = f32[256] parameter(0)
              y = f32[1] parameter(1)
              z = s32[] parameter(2)
              w = f32[256] bitcast(x)
              ROOT d = f32[256] dynamic-update-slice(w, y, z)
            }""",
        )
    )
    assert ranges.temporaries() == KIB


def test_a_call_that_says_so_writes_into_its_operand(ranges_of):
    body = """
      p = f32[256] parameter(0)
      a = f32[256] negate(p)
      c = (f32[256], u8[100]) custom-call(a), custom_call_target="k"{aliasing}
      g = f32[256] get-tuple-element(c), index=0
      ROOT o = f32[1] slice(g), slice={{[0:1]}}
    """
    declared = ", output_to_operand_aliasing={{0}: (0, {})}"
    assert ranges_of(program(body.format(aliasing=declared))).temporaries() == KIB + 100
    assert ranges_of(program(body.format(aliasing=""))).temporaries() == 2 * KIB + 100


LOOP = """
body {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[256] get-tuple-element(s), index=1
  big = f32[1024] broadcast(x), dimensions={0}
  y = f32[256] slice(big), slice={[0:256]}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[256]) tuple(j, y)
}
cond {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(8)
  ROOT c = pred[] compare(i, n), direction=LT
}
"""


def test_a_loop_carries_in_place_and_adds_the_peak_of_one_run(ranges_of):
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          k = s32[] parameter(1)
          a = f32[256] negate(p)
          i = s32[] negate(k)
          t = (s32[], f32[256]) tuple(i, a)
          w = (s32[], f32[256]) while(t), condition=cond, body=body
          x = f32[256] get-tuple-element(w), index=1
          ROOT o = f32[1] slice(x), slice={[0:1]}
        """,
            before=LOOP,
        )
    )
    # a outside, and inside only `big`, as y is written where x lay; the counter
    # lies in the four bytes of the result until that is written.
    assert ranges.temporaries() == KIB + 4 * KIB
    frames = ranges.stack()
    assert [frame.computation.name for frame, _ in frames] == ["e", "body"]
    assert {b.instruction.name for b in ranges.alive()} == {"a", "big"}


def test_of_a_conditional_the_largest_branch_counts(ranges_of):
    branch = """
      {name} {{
        x = f32[256] parameter(0)
        a = f32[{size}] broadcast(x), dimensions={{0}}
        ROOT r = f32[256] slice(a), slice={{[0:256]}}
      }}
    """
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          k = s32[] parameter(1)
          c = f32[256] conditional(k, p, p), branch_computations={small, large}
          ROOT o = f32[1] slice(c), slice={[0:1]}
        """,
            before=branch.format(name="small", size=512) + branch.format(name="large", size=2048),
        )
    )
    # 8 KiB and the result, which belongs to the branch while it runs.
    assert ranges.temporaries() == (8 + 1) * KIB


def test_what_a_call_hands_through_is_not_counted_twice(ranges_of):
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          a = f32[256] negate(p)
          c = (f32[256], f32[512]) call(a), to_apply=callee
          g = f32[256] get-tuple-element(c), index=0
          h = f32[512] get-tuple-element(c), index=1
          ROOT o = f32[768] concatenate(g, h), dimensions={0}
        """,
            before="""callee {
              x = f32[256] parameter(0)
              d = f32[512] concatenate(x, x), dimensions={0}
              ROOT t = (f32[256], f32[512]) tuple(x, d)
            }""",
        )
    )
    assert ranges.temporaries() == (1 + 2) * KIB


def test_an_asynchronous_result_lives_from_start_to_last_use(ranges_of):
    ranges = ranges_of(
        program("""
          p = f32[256] parameter(0)
          s = (f32[256], f32[1024]) all-gather-start(p), replica_groups={{0,1,2,3}}, dimensions={0}
          a = f32[512] concatenate(p, p), dimensions={0}
          b = f32[512] reverse(a), dimensions={0}
          d = f32[1024] all-gather-done(s)
          ROOT o = f32[1] slice(d), slice={[0:1]}
        """)
    )
    # p stays where it is; 4 KiB gathered beside a and b.
    assert ranges.temporaries() == (4 + 2 + 2) * KIB


def test_memories_are_kept_apart_and_tiles_are_padded(ranges_of):
    ranges = ranges_of(
        program("""
          p = f32[3,100]{1,0:T(8,128)} parameter(0)
          a = f32[3,100]{1,0:T(8,128)S(1)} negate(p)
          b = f32[3,100]{1,0:T(8,128)} negate(a)
          c = f32[3,100]{1,0:T(8,128)S(5)} copy(b)
          ROOT o = f32[1]{0:T(128)} custom-call(c), custom_call_target="k"
        """)
    )
    padded = 8 * 128 * 4
    assert {space: ranges.temporaries(space) for space in Space} == dict.fromkeys(Space, padded)


def test_what_a_fusion_holds_inside_takes_no_memory(ranges_of):
    ranges = ranges_of(
        program(
            """
          p = f32[256] parameter(0)
          f = f32[256] fusion(p), kind=kLoop, calls=inner
          ROOT o = f32[1] slice(f), slice={[0:1]}
        """,
            before="""inner {
              x = f32[256] parameter(0)
              big = f32[1048576] broadcast(x), dimensions={0}
              ROOT r = f32[256] slice(big), slice={[0:256]}
            }""",
        )
    )
    assert ranges.temporaries() == KIB


def test_an_unscheduled_module_says_so(session_of):
    text = "HloModule m\nENTRY e {\n ROOT p = f32[8] parameter(0)\n}"
    with pytest.raises(Unavailable, match="not scheduled"):
        session_of(text).get(LiveRanges)
