import pytest

from hloscope.ir import parse_modules, parse_text
from hloscope.passes.call_graph import CallKind, call_graph
from hloscope.passes.induction import induce_trip_count
from hloscope.passes.trip_counts import trip_counts
from hloscope.pipeline.findings import Basis


def loop(
    start: str = "0",
    limit: str = "10",
    step: str = "1",
    direction: str = "LT",
    operation: str = "add",
    dtype: str = "s32",
) -> str:
    """A counting loop with every number in its place."""
    return f"""
    HloModule counting
    cond {{
      p = ({dtype}[], f32[4]) parameter(0)
      i = {dtype}[] get-tuple-element(p), index=0
      limit = {dtype}[] constant({limit})
      ROOT go = pred[] compare(i, limit), direction={direction}
    }}
    body {{
      p = ({dtype}[], f32[4]) parameter(0)
      i = {dtype}[] get-tuple-element(p), index=0
      step = {dtype}[] constant({step})
      next = {dtype}[] {operation}(i, step)
      x = f32[4] get-tuple-element(p), index=1
      ROOT t = ({dtype}[], f32[4]) tuple(next, x)
    }}
    ENTRY e {{
      start = {dtype}[] constant({start})
      x = f32[4] parameter(0)
      init = ({dtype}[], f32[4]) tuple(start, x)
      ROOT w = ({dtype}[], f32[4]) while(init), condition=cond, body=body
    }}
    """


def only(text: str):
    counts = trip_counts(call_graph(parse_text(text)))
    (count,) = counts.values()
    return count


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({}, 10),  # 0, 1, ... 9
        ({"start": "3"}, 7),  # 3 ... 9
        ({"step": "3"}, 4),  # 0, 3, 6, 9
        ({"direction": "LE"}, 11),  # 0 ... 10
        ({"direction": "LE", "step": "5"}, 3),  # 0, 5, 10
        ({"direction": "NE"}, 10),
        ({"direction": "NE", "step": "2"}, 5),
        ({"start": "10", "limit": "0", "step": "-1", "direction": "GT"}, 10),  # 10 ... 1
        ({"start": "10", "limit": "0", "step": "-4", "direction": "GE"}, 3),  # 10, 6, 2
        ({"start": "10", "limit": "0", "step": "2", "operation": "subtract", "direction": "GT"}, 5),
        ({"start": "10", "limit": "0", "step": "-5", "direction": "NE"}, 2),
        ({"start": "12"}, 0),
        ({"start": "5", "limit": "5", "direction": "EQ"}, 1),
        # An unsigned counter goes down by adding 2^32 - 1.
        (
            {
                "start": "4",
                "limit": "0",
                "step": "4294967295",
                "direction": "GT",
                "dtype": "u32",
            },
            4,
        ),
    ],
)
def test_a_counting_loop_runs_as_often_as_its_numbers_say(numbers, expected):
    count = only(loop(**numbers))
    assert (count.count, count.basis, count.source) == (
        expected,
        Basis.EXACT,
        "induction variable",
    )


@pytest.mark.parametrize(
    "numbers",
    [
        {"step": "0"},
        {"step": "-1"},
        {"direction": "NE", "step": "3"},
        {"direction": "GT", "start": "11"},
        {"direction": "EQ", "start": "10", "step": "0"},
    ],
)
def test_a_loop_that_would_run_until_its_counter_wraps_is_unknown(numbers):
    count = only(loop(**numbers))
    assert count.count is None
    assert count.basis is Basis.UNKNOWN
    assert "never fails" in count.reason


def test_the_limit_may_stand_on_the_left():
    text = loop().replace("compare(i, limit), direction=LT", "compare(limit, i), direction=GT")
    assert only(text).count == 10


def test_what_xla_recorded_wins_over_what_the_loop_says():
    text = loop().replace("body=body", 'body=body, backend_config={"known_trip_count":{"n":"7"}}')
    count = only(text)
    assert (count.count, count.source) == (7, "known_trip_count")


WRAPPED = """
HloModule wrapped
compare_computation {
  bound = s32[] parameter(0)
  i = s32[] parameter(1)
  ROOT go = pred[] compare(i, bound), direction=LT
}
add_computation {
  one = s32[] constant(2)
  i = s32[] parameter(0)
  c = s32[] copy(i)
  next = s32[] add(one, c)
  half = f32[] constant(0.5)
  ROOT pair = (s32[], f32[]) tuple(next, half)
}
cond {
  p = (f32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  n = s32[] get-tuple-element(p), index=2
  n64 = s64[] convert(n)
  n32 = s32[] convert(n64)
  go = pred[] fusion(n32, i), kind=kLoop, calls=compare_computation
  ROOT copied = pred[] copy(go)
}
body {
  p = (f32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  b = s32[] bitcast(i)
  both = (s32[], f32[]) fusion(b), kind=kLoop, calls=add_computation
  next = s32[] get-tuple-element(both), index=0
  x = f32[] get-tuple-element(both), index=1
  n = s32[] get-tuple-element(p), index=2
  ROOT t = (f32[], s32[], s32[]) tuple(x, next, n)
}
ENTRY e {
  zero = s32[] constant(0)
  start = s32[] copy(zero)
  nine = s32[] constant(9)
  x = f32[] parameter(0)
  init = (f32[], s32[], s32[]) tuple(x, start, nine)
  ROOT w = (f32[], s32[], s32[]) while(init), condition=cond, body=body
}
"""


def test_the_numbers_are_found_through_fusions_copies_and_the_carried_tuple():
    # 0, 2, 4, 6, 8 are below the carried 9.
    assert only(WRAPPED).count == 5


def test_a_carried_bound_that_the_body_changes_is_no_bound():
    changed = WRAPPED.replace(
        "n = s32[] get-tuple-element(p), index=2\n  ROOT t",
        "m = s32[] get-tuple-element(p), index=2\n  n = s32[] multiply(m, m)\n  ROOT t",
    )
    assert only(changed).count is None


def test_a_bound_that_moves_with_the_counter_meets_it_halfway():
    # i counts 0, 2, 4... and the bound 9, 8, 7...: 0<9, 2<8, 4<7, 6<6 fails.
    moving = WRAPPED.replace(
        "n = s32[] get-tuple-element(p), index=2\n  ROOT t",
        "m = s32[] get-tuple-element(p), index=2\n  k = s32[] constant(1)\n"
        "  n = s32[] subtract(m, k)\n  ROOT t",
    )
    assert only(moving).count == 3


def test_a_bound_that_is_an_argument_of_the_program_is_unknown_with_that_reason():
    text = WRAPPED.replace("nine = s32[] constant(9)", "nine = s32[] parameter(1)")
    count = only(text)
    assert count.count is None
    assert "%nine comes from the program's arguments" in count.reason


def test_two_joined_conditions_end_with_the_first_that_fails():
    text = loop().replace(
        "ROOT go = pred[] compare(i, limit), direction=LT",
        "a = pred[] compare(i, limit), direction=LT\n"
        "      four = s32[] constant(4)\n"
        "      b = pred[] compare(i, four), direction=LT\n"
        "      ROOT go = pred[] and(a, b)",
    )
    count = only(text)
    assert (count.count, count.basis) == (4, Basis.EXACT)


def test_a_condition_with_one_unreadable_part_bounds_the_count_from_above():
    text = loop().replace(
        "ROOT go = pred[] compare(i, limit), direction=LT",
        "a = pred[] compare(i, limit), direction=LT\n"
        "      x = f32[4] get-tuple-element(p), index=1\n"
        "      s = f32[1] slice(x), slice={[0:1]}\n"
        "      r = f32[] reshape(s)\n"
        "      tolerance = f32[] constant(0.1)\n"
        "      b = pred[] compare(r, tolerance), direction=GT\n"
        "      ROOT go = pred[] and(a, b)",
    )
    count = only(text)
    assert (count.count, count.basis) == (10, Basis.BOUNDED)


NESTED = """
HloModule nested
inner_cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT go = pred[] compare(i, n), direction=LT
}
inner_body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  n = s32[] get-tuple-element(p), index=1
  ROOT t = (s32[], s32[]) tuple(next, n)
}
outer_cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  four = s32[] constant(4)
  ROOT go = pred[] compare(i, four), direction=LT
}
outer_body {
  p = (s32[], s32[]) parameter(0)
  n = s32[] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  init = (s32[], s32[]) tuple(zero, n)
  inner = (s32[], s32[]) while(init), condition=inner_cond, body=inner_body
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  kept = s32[] get-tuple-element(inner), index=1
  ROOT t = (s32[], s32[]) tuple(next, kept)
}
ENTRY e {
  zero = s32[] constant(0)
  six = s32[] constant(6)
  init = (s32[], s32[]) tuple(zero, six)
  ROOT outer = (s32[], s32[]) while(init), condition=outer_cond, body=outer_body
}
"""


def test_a_bound_is_followed_out_of_an_enclosing_loop_that_leaves_it_alone():
    # outer_body gets its element 1 back from the inner loop, which leaves it alone as well.
    counts = {w.name: c.count for w, c in trip_counts(call_graph(parse_text(NESTED))).items()}
    assert counts == {"inner": 6, "outer": 4}


def test_a_bound_that_the_enclosing_loop_hands_on_directly_is_known():
    text = NESTED.replace("kept = s32[] get-tuple-element(inner), index=1", "kept = s32[] copy(n)")
    counts = {w.name: c.count for w, c in trip_counts(call_graph(parse_text(text))).items()}
    assert counts == {"inner": 6, "outer": 4}


def test_arithmetic_that_doubles_at_each_step_is_given_up_rather_than_followed_for_ever():
    doubling = "\n".join(f"d{n + 1} = s32[] add(d{n}, d{n})" for n in range(60))
    text = loop().replace(
        "limit = s32[] constant(10)", f"d0 = s32[] constant(1)\n{doubling}\nlimit = s32[] copy(d60)"
    )
    count = only(text)
    assert count.count is None
    assert "to follow" in count.reason


def test_a_very_long_chain_of_copies_does_not_exhaust_the_stack():
    chain = "\n".join(f"c{n + 1} = s32[] copy(c{n})" for n in range(3000))
    text = loop().replace(
        "limit = s32[] constant(10)", f"c0 = s32[] constant(10)\n{chain}\nlimit = s32[] copy(c3000)"
    )
    assert only(text).count == 10


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("tpu_scan_train.hlo", [6, 6]),
        ("tpu_scan_remat.hlo", [6, 6]),
        ("tpu_m_scan_fsdp.hlo", [8, 8]),
        ("tpu_while_dyn.hlo", [None]),
        ("cpu_scan.hlo", [6, 6]),
        ("gpu_scan_train.hlo", [6, 6]),
        ("gpu_m_scan_db.hlo", [4, 4]),
        ("gpu_m_scan_unroll.hlo", [4, 4]),
        ("cpu_while_dyn.hlo", [None]),
    ],
)
def test_recorded_loops_run_as_often_as_their_source_says(fixtures_dir, file, expected):
    text = (fixtures_dir / "compiled" / "today" / file).read_text()
    counts = trip_counts(call_graph(parse_text(text)))
    assert [count.count for count in counts.values()] == expected


def test_induction_agrees_with_every_count_that_xla_recorded(fixtures_dir):
    compared = 0
    for path in sorted((fixtures_dir / "compiled").glob("*/*.hlo")):
        for module in parse_modules(path.read_text(), file=path.name):
            graph = call_graph(module)
            for loop, count in trip_counts(graph).items():
                if count.source == "known_trip_count":
                    assert induce_trip_count(loop, graph.callers) == (count.count, True), path.name
                    compared += 1
    assert compared > 30


def test_a_body_is_the_only_call_that_makes_a_loop():
    module = parse_text(loop())
    kinds = [call.kind for call in call_graph(module).calls[module.entry]]
    assert sorted(kinds) == [CallKind.BODY, CallKind.CONDITION]
