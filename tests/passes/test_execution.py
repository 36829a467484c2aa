"""What is launched by itself, and how often."""

from hloscope.passes.execution import Execution

PROGRAM = """HloModule m

add {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q)
}

inner {
  p = f32[8] parameter(0)
  ROOT n = f32[8] negate(p)
}

outer {
  p = f32[8] parameter(0)
  ROOT f = f32[8] fusion(p), kind=kLoop, calls=inner
}

beside {
  p = f32[8] parameter(0)
  ROOT g = f32[16] all-gather(p), replica_groups={{0,1}}, dimensions={0}
}

cond {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(5)
  ROOT lt = pred[] compare(i, n), direction=LT
}

body {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8] get-tuple-element(t), index=1
  y = f32[8] fusion(x), kind=kLoop, calls=outer
  ROOT r = (s32[], f32[8]) tuple(next, y)
}

ENTRY e {
  a = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = ((f32[8]), f32[16]) async-start(a), calls=beside
  init = (s32[], f32[8]) tuple(zero, a)
  loop = (s32[], f32[8]) while(init), condition=cond, body=body
  y = f32[8] get-tuple-element(loop), index=1
  z = f32[] constant(0)
  sum = f32[] reduce(y, z), dimensions={0}, to_apply=add
  done = f32[16] async-done(start)
  ROOT r = (f32[], f32[16]) tuple(sum, done)
}
"""


def execution_of(session_of):
    return session_of(PROGRAM).get(Execution)


def test_what_stands_in_fusions_and_reducers_is_not_launched(session_of):
    names = [instruction.name for instruction in execution_of(session_of).launched()]
    assert sorted(names) == ["g", "lt", "next", "sum", "y"]


def test_a_loops_body_runs_its_trips_and_its_condition_once_more(session_of):
    execution = execution_of(session_of)
    times = {c.name: t.exact for c, t in execution.times.items()}
    assert times == {"e": 1, "body": 5, "cond": 6, "beside": 1}


def test_an_instruction_in_nested_fusions_belongs_to_the_outermost(session_of):
    execution = execution_of(session_of)
    module = execution.order[-1].module
    nested = module.computations["inner"]["n"]
    assert execution.launch_of(nested) is module.computations["body"]["y"]
    assert execution.launch_of(module.computations["add"]["s"]) is None
    entry_sum = module.entry["sum"]
    assert execution.launch_of(entry_sum) is entry_sum


def test_what_an_asynchronous_start_wraps_runs_beside_the_rest(session_of):
    execution = execution_of(session_of)
    module = execution.order[-1].module
    assert execution.runs_beside(module.computations["beside"]["g"])
    assert not execution.runs_beside(module.computations["body"]["y"])
