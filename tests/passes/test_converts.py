from hloscope.ir import Module
from hloscope.passes.converts import Converts
from hloscope.passes.origins import Origins
from hloscope.passes.parameter_casts import ParameterCasts
from hloscope.passes.round_trips import RoundTrips

ASKED = ', metadata={op_name="jit(f)/convert_element_type"}'

FUSED = """
HloModule m
fused {
  p = f32[1024] parameter(0)
  narrow = bf16[1024] convert(p)
  n = bf16[1024] negate(narrow)
  wide = f32[1024] convert(n)
  ROOT t = (bf16[1024], f32[1024]) tuple(n, wide)
}
ENTRY e {
  x = f32[1024] parameter(0)
  alone = bf16[1024] convert(x), metadata={op_name="jit(f)/convert_element_type"}
  f = (bf16[1024], f32[1024]) fusion(x), kind=kLoop, calls=fused
  ROOT t = (bf16[1024], (bf16[1024], f32[1024])) tuple(alone, f)
}
"""


def test_a_conversion_owns_the_bytes_at_the_edge_of_its_launch(session_of):
    rows = {row.instruction.name: row for row in session_of(FUSED).get(Converts).rows}
    # By itself: reads 4 KiB, writes 2. First in a fusion: reads. Last in one: writes.
    assert (rows["alone"].read, rows["alone"].written) == (4096, 2048)
    assert (rows["narrow"].read, rows["narrow"].written) == (4096, 0)
    assert (rows["wide"].read, rows["wide"].written) == (0, 4096)
    assert [rows[name].alone for name in ("alone", "narrow", "wide")] == [True, False, False]
    assert [rows[name].asked_for for name in ("alone", "narrow", "wide")] == [True, False, False]
    assert rows["narrow"].launch.name == rows["wide"].launch.name == "f"


def test_two_conversions_of_one_launch_read_one_array_once(session_of):
    text = FUSED.replace("n = bf16[1024] negate(narrow)", "n = f16[1024] convert(p)").replace(
        "wide = f32[1024] convert(n)", "wide = f32[1024] negate(p)"
    )
    text = text.replace("(bf16[1024], f32[1024])", "(f16[1024], f32[1024])")
    rows = {row.instruction.name: row for row in session_of(text).get(Converts).rows}
    assert rows["narrow"].read + rows["n"].read == 4096


def test_a_loop_multiplies_the_bytes(session_of):
    text = """
    HloModule m
    cond { p = (f32[8]) parameter(0)  ROOT go = pred[] constant(true) }
    body {
      p = (f32[8]) parameter(0)
      w = f32[8] get-tuple-element(p), index=0
      c = bf16[8] convert(w)
      b = f32[8] convert(c)
      ROOT t = (f32[8]) tuple(b)
    }
    ENTRY e {
      x = f32[8] parameter(0)
      i = (f32[8]) tuple(x)
      ROOT l = (f32[8]) while(i), condition=cond, body=body,
        backend_config={"known_trip_count":{"n":"5"}}
    }
    """
    rows = session_of(text).get(Converts).rows
    assert [row.nominal_bytes for row in rows] == [5 * (32 + 16), 5 * (16 + 32)]


def test_origins_follow_a_value_through_fusions_tuples_and_movement(session_of):
    text = """
    HloModule m, num_partitions=4
    fused {
      p = f32[8] parameter(0)
      n = f32[8] negate(p)
      ROOT t = (f32[8], f32[8]) tuple(n, p)
    }
    ENTRY e {
      x = f32[8] parameter(0)
      f = (f32[8], f32[8]) fusion(x), kind=kLoop, calls=fused
      first = f32[8] get-tuple-element(f), index=0
      second = f32[8] get-tuple-element(f), index=1
      r = f32[2,4] reshape(second)
      g = f32[8,4] all-gather(r), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0},
        use_global_device_ids=true
      ROOT t = (f32[8], f32[8,4]) tuple(first, g)
    }
    """
    session = session_of(text)
    origins, entry = session.get(Origins), session.get(Module).entry
    assert origins.of(entry["first"]).name == "n"
    assert origins.of(entry["r"]).name == "x"
    assert not origins.exchanged(entry["r"])
    assert origins.of(entry["g"]).name == "x"
    assert origins.exchanged(entry["g"])


TRIP = """
HloModule m
there {{
  p = f32[1024] parameter(0)
  a = f32[1024] {first}(p)
  ROOT c = bf16[1024] convert(a){asked}
}}
back {{
  q = bf16[1024] parameter(0)
  d = f32[1024] convert(q){asked}
  ROOT b = f32[1024] {second}(d)
}}
ENTRY e {{
  x = f32[1024] parameter(0)
  h = bf16[1024] fusion(x), kind=kLoop, calls=there
  r = bf16[32,32] reshape(h)
  s = bf16[1024] reshape(r)
  w = f32[1024] fusion(s), kind=kLoop, calls=back
  ROOT t = (f32[1024], bf16[1024]) tuple(w{also})
}}
"""


def trip(session_of, first="bitcast", second="bitcast", also=", h", asked=ASKED):
    text = TRIP.format(first=first, second=second, also=also, asked=asked)
    if not also:
        text = text.replace("(f32[1024], bf16[1024])", "(f32[1024])")
    (row,) = session_of(text).get(RoundTrips).rows
    return row


def test_two_launches_that_only_convert_are_all_for_nothing(session_of):
    row = trip(session_of, also="")
    # 4 + 2 bytes an element there, 2 + 4 back.
    assert (row.bytes, row.shared, row.loses) == (1024 * (6 + 6), False, True)
    assert row.asked_for


def test_a_value_that_is_needed_narrow_as_well_costs_the_way_back_only(session_of):
    row = trip(session_of)
    assert (row.bytes, row.shared) == (1024 * 6, True)


def test_a_narrow_value_between_two_computations_costs_nothing(session_of):
    # Two bytes cross where four would: the pair saves memory.
    assert trip(session_of, "negate", "negate", also="").bytes == 0


def test_conversions_without_the_primitives_name_are_xlas(session_of):
    assert not trip(session_of, asked="").asked_for


CASTS = """
HloModule m
ENTRY e {{
  w = f32[64,64] parameter(0), metadata={{op_name="params['w']"}}
  {casts}
  ROOT t = bf16[64,64] negate(c0)
}}
"""


def casts(session_of, number):
    lines = "\n".join(f"c{k} = bf16[64,64] convert(w){ASKED}" for k in range(number))
    (row,) = session_of(CASTS.format(casts=lines)).get(ParameterCasts).rows
    return row


def test_one_conversion_of_a_parameter_wastes_nothing(session_of):
    row = casts(session_of, 1)
    assert (row.times_over, row.wasted_bytes) == (1.0, 0)


def test_three_conversions_by_themselves_waste_two(session_of):
    row = casts(session_of, 3)
    # Each reads 4, writes 2, and its use reads 2; once: 6, and three uses read 2 each.
    elements = 64 * 64
    assert row.bytes == 3 * elements * (4 + 2 + 2)
    assert row.bytes_once == elements * (4 + 2) + 3 * elements * 2
    assert row.wasted_bytes == 2 * elements * (4 + 2)
    assert row.times_over == 3.0
