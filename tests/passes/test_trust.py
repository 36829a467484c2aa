from hloscope.pipeline.findings import Trust


def test_the_trust_line_counts_what_was_understood_and_names_the_rest(session_of):
    text = """
    HloModule m
    cond {
      p = (s32[], s32[]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] get-tuple-element(p), index=1
      ROOT go = pred[] compare(i, n), direction=LT
    }
    body {
      p = (s32[], s32[]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      one = s32[] constant(1)
      next = s32[] add(i, one)
      n = s32[] get-tuple-element(p), index=1
      ROOT t = (s32[], s32[]) tuple(next, n)
    }
    ENTRY e {
      n = s32[] parameter(0)
      zero = s32[] constant(0)
      init = (s32[], s32[]) tuple(zero, n)
      w = (s32[], s32[]) while(init), condition=cond, body=body
      known = (s32[], s32[]) while(w), condition=cond, body=body,
        backend_config={"known_trip_count":{"n":"3"}}
      x = f32[] parameter(1)
      a = f32[] custom-call(x), custom_call_target="Sharding"
      b = f32[] custom-call(a), custom_call_target="mystery"
      c = f32[] custom-call(b), custom_call_target="mystery"
      r = s32[] get-tuple-element(known), index=0
      ROOT t = (s32[], f32[]) tuple(r, c)
    }
    """
    trust = session_of(text).get(Trust)
    assert (trust.instructions, trust.loops, trust.loops_understood) == (21, 2, 1)
    assert (trust.custom_calls, trust.custom_calls_understood) == (3, 1)
    assert trust.notes == (
        "custom call mystery (x2): no model for this target",
        "loop w: %n comes from the program's arguments",
    )


def test_products_that_could_not_be_counted_are_named(session_of):
    text = """
    HloModule m
    ENTRY e {
      x = f32[?,8] parameter(0)
      y = f32[8,8] parameter(1)
      ROOT d = f32[?,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }
    """
    (note,) = session_of(text).get(Trust).notes
    assert note.startswith("1 products not counted, first d: ")
