"""A small training step as HLO, with and without rematerialization, and as a scan."""

KEPT = """HloModule step, is_scheduled=true
ENTRY e {
  w = f32[8,8] parameter(0), metadata={op_name="w"}
  x = f32[4,8] parameter(1), metadata={op_name="x"}
  add.1 = f32[4,8] add(x, x), metadata={op_name="jit(f)/jvp(embed)/add"}
  dot.1 = f32[4,8] dot(add.1, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/jvp(block)/dot_general"}
  tanh.1 = f32[4,8] tanh(dot.1), metadata={op_name="jit(f)/jvp(block)/tanh"}
  dot.2 = f32[4,8] dot(tanh.1, w), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/jvp(block)/dot_general"}
  loss = f32[4,8] multiply(dot.2, dot.2), metadata={op_name="jit(f)/jvp(loss)/mul"}
  back = f32[4,8] add(dot.2, dot.2), metadata={op_name="jit(f)/transpose(jvp(loss))/mul"}
  dot.3 = f32[4,8] dot(back, w), lhs_contracting_dims={1}, rhs_contracting_dims={1},
    metadata={op_name="jit(f)/transpose(jvp(block))/dot_general"}
  mul.1 = f32[4,8] multiply(dot.3, tanh.1), metadata={op_name="jit(f)/transpose(jvp(block))/mul"}
  dot.4 = f32[8,8] dot(add.1, mul.1), lhs_contracting_dims={0}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/transpose(jvp(block))/dot_general"}
  new = f32[8,8] subtract(w, dot.4), metadata={op_name="jit(f)/optimizer/sub"}
  ROOT r = (f32[8,8], f32[4,8]) tuple(new, loss)
}
"""

_AGAIN = """  guarded = (f32[8,8], f32[4,8]) tuple(w, add.1)
  barrier = (f32[8,8], f32[4,8]) opt-barrier(guarded)
  w.again = f32[8,8] get-tuple-element(barrier), index=0
  x.again = f32[4,8] get-tuple-element(barrier), index=1
  dot.5 = f32[4,8] dot(x.again, w.again), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/transpose(jvp(block))/checkpoint/rematted_computation/dot_general"}
  tanh.2 = f32[4,8] tanh(dot.5),
    metadata={op_name="jit(f)/transpose(jvp(block))/checkpoint/rematted_computation/tanh"}
  mul.1 = f32[4,8] multiply(dot.3, tanh.2),
    metadata={op_name="jit(f)/transpose(jvp(block))/checkpoint/mul"}
"""

_DIRECT = next(line for line in KEPT.splitlines(keepends=True) if "mul.1 =" in line)

REMAT = KEPT.replace(_DIRECT, _AGAIN)

# The forward pass reads the repetition: XLA merged it with the first computation.
MERGED = REMAT.replace("dot.2 = f32[4,8] dot(tanh.1,", "dot.2 = f32[4,8] dot(tanh.2,")
_MOVED = MERGED[MERGED.index("  guarded") : MERGED.index("  mul.1")]
MERGED = MERGED.replace(_MOVED, "").replace("  dot.2 =", _MOVED + "  dot.2 =")

SCAN = """HloModule scan, is_scheduled=true
fwd {
  p = (s32[], f32[4,8], f32[6,4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[4,8] get-tuple-element(p), index=1
  all = f32[6,4,8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one), metadata={op_name="jit(f)/jvp(layers)/while/body/add"}
  row = f32[1,4,8] bitcast(h)
  stack = f32[6,4,8] dynamic-update-slice(all, row, i, zero, zero),
    metadata={op_name="jit(f)/jvp(layers)/while/body/dynamic_update_slice"}
  tanh.1 = f32[4,8] tanh(h), metadata={op_name="jit(f)/jvp(layers)/while/body/tanh"}
  ROOT r = (s32[], f32[4,8], f32[6,4,8]) tuple(next, tanh.1, stack)
}
bwd {
  p = (s32[], f32[4,8], f32[6,4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  g = f32[4,8] get-tuple-element(p), index=1
  all = f32[6,4,8] get-tuple-element(p), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one), metadata={op_name="jit(f)/transpose(jvp(layers))/while/body/add"}
  take = f32[1,4,8] dynamic-slice(all, i, zero, zero), dynamic_slice_sizes={1,4,8},
    metadata={op_name="jit(f)/transpose(jvp(layers))/while/body/dynamic_slice"}
  h = f32[4,8] bitcast(take)
  tanh.2 = f32[4,8] tanh(h),
    metadata={op_name="jit(f)/transpose(jvp(layers))/checkpoint/rematted_computation/tanh"}
  mul.1 = f32[4,8] multiply(g, tanh.2),
    metadata={op_name="jit(f)/transpose(jvp(layers))/while/body/checkpoint/mul"}
  ROOT r = (s32[], f32[4,8], f32[6,4,8]) tuple(next, mul.1, all)
}
cond {
  p = (s32[], f32[4,8], f32[6,4,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  six = s32[] constant(6)
  ROOT less = pred[] compare(i, six), direction=LT
}
ENTRY e {
  x = f32[4,8] parameter(0), metadata={op_name="x"}
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  empty = f32[6,4,8] broadcast(nothing), dimensions={}
  in = (s32[], f32[4,8], f32[6,4,8]) tuple(zero, x, empty)
  there = (s32[], f32[4,8], f32[6,4,8]) while(in), condition=cond, body=fwd
  kept = f32[6,4,8] get-tuple-element(there), index=2
  out = f32[4,8] get-tuple-element(there), index=1
  back = f32[4,8] multiply(out, out), metadata={op_name="jit(f)/transpose(jvp(loss))/mul"}
  on = (s32[], f32[4,8], f32[6,4,8]) tuple(zero, back, kept)
  again = (s32[], f32[4,8], f32[6,4,8]) while(on), condition=cond, body=bwd
  ROOT g = f32[4,8] get-tuple-element(again), index=1
}
"""
