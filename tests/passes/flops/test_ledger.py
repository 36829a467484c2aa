import pytest

from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.totals import FlopTotal
from hloscope.pipeline.findings import Basis

DOT = "dot({a}, {b}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
ONE = 2 * 8 * 8 * 8  # an 8x8 by 8x8 product


def program(body: str, computations: str = "") -> str:
    return f"""HloModule m
    product {{
      a = f32[8,8] parameter(0)
      b = f32[8,8] parameter(1)
      ROOT d = f32[8,8] {DOT.format(a="a", b="b")}
    }}
    {computations}
    ENTRY e {{
      x = f32[8,8] parameter(0)
      {body}
    }}
    """


def test_a_product_inside_a_fusion_is_counted_once(ledger_of):
    ledger = ledger_of(program("ROOT f = f32[8,8] fusion(x, x), kind=kCustom, calls=product"))
    (row,) = ledger.rows
    assert (row.count.flops, row.chain) == (ONE, "f")
    assert ledger.total == FlopTotal(ONE, ONE, ONE)
    assert ledger.total.basis is Basis.EXACT


def test_a_fusion_called_from_two_places_is_counted_twice(ledger_of):
    ledger = ledger_of(
        program(
            "f = f32[8,8] fusion(x, x), kind=kCustom, calls=product\n"
            "ROOT g = f32[8,8] fusion(f, x), kind=kCustom, calls=product"
        )
    )
    assert ledger.total.low == 2 * ONE


def test_an_asynchronous_product_counts_at_its_start_only(ledger_of):
    ledger = ledger_of(
        program(
            "s = ((f32[8,8], f32[8,8]), f32[8,8], u32[]) async-start(x, x), calls=product\n"
            "ROOT d = f32[8,8] async-done(s), calls=product"
        )
    )
    assert ledger.total == FlopTotal(ONE, ONE, ONE)


def test_an_asynchronous_library_call_counts_its_result_not_its_bookkeeping(ledger_of):
    config = (
        '{"gemm_backend_config":{"dot_dimension_numbers":'
        '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
    )
    ledger = ledger_of(
        program(
            "s = ((f32[8,8], f32[8,8]), (f32[8,8], s8[64]), u32[]) custom-call-start(x, x), "
            f'custom_call_target="__cublas$gemm", backend_config={config}\n'
            "d = (f32[8,8], s8[64]) custom-call-done(s)\n"
            "ROOT r = f32[8,8] get-tuple-element(d), index=0"
        )
    )
    assert ledger.total == FlopTotal(ONE, ONE, ONE)
    assert (ledger.custom_calls, ledger.custom_calls_understood) == (1, 1)


LOOP = """
    cond {{
      p = (s32[], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      m = f32[8,8] get-tuple-element(p), index=1
      row = f32[1,1] slice(m), slice={{[0:1], [0:1]}}
      s = f32[] reshape(row)
      n = s32[] {limit}
      ROOT go = pred[] compare(i, n), direction=LT
    }}
    body {{
      p = (s32[], f32[8,8]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      one = s32[] constant(1)
      next = s32[] add(i, one)
      m = f32[8,8] get-tuple-element(p), index=1
      d = f32[8,8] fusion(m, m), kind=kCustom, calls=product
      ROOT t = (s32[], f32[8,8]) tuple(next, d)
    }}
"""
RUN = """
      zero = s32[] constant(0)
      init = (s32[], f32[8,8]) tuple(zero, x)
      w = (s32[], f32[8,8]) while(init), condition=cond, body=body
      ROOT r = f32[8,8] get-tuple-element(w), index=1
"""


def test_a_loop_of_a_hundred_counts_a_hundred_times(ledger_of):
    ledger = ledger_of(program(RUN, LOOP.format(limit="constant(100)")))
    (row,) = ledger.rows
    assert (row.times.exact, row.chain) == (100, "w x100 -> d")
    assert ledger.total == FlopTotal(100 * ONE, 100 * ONE, 100 * ONE)


def test_a_loop_of_unknown_length_makes_the_total_unknown_but_weighs_once(ledger_of):
    ledger = ledger_of(program(RUN, LOOP.format(limit="convert(s)")))
    assert ledger.total == FlopTotal(0, None, ONE)
    assert ledger.total.basis is Basis.UNKNOWN
    assert ledger.total.quantity("FLOPs").value is None


def test_what_stands_outside_an_unknown_loop_is_a_lower_bound(ledger_of):
    body = RUN.replace("tuple(zero, x)", "tuple(zero, y)").replace(
        "zero =", "y = f32[8,8] fusion(x, x), kind=kCustom, calls=product\n      zero ="
    )
    total = ledger_of(program(body, LOOP.format(limit="convert(s)"))).total
    assert total == FlopTotal(ONE, None, 2 * ONE)
    quantity = total.quantity("FLOPs")
    assert (quantity.value, quantity.basis, quantity.model) == (ONE, Basis.BOUNDED, "lower bound")


WINDOWED = """HloModule windowed
  cond {
    p = (f32[8,64], f32[64,16], f32[32,16], u32[]) parameter(0)
    i = u32[] get-tuple-element(p), index=3
    n = u32[] constant(4)
    ROOT go = pred[] compare(i, n), direction=LT
  }
  body {
    p = (f32[8,64], f32[64,16], f32[32,16], u32[]) parameter(0)
    a = f32[8,64] get-tuple-element(p), index=0
    b = f32[64,16] get-tuple-element(p), index=1
    o = f32[32,16] get-tuple-element(p), index=2
    i = u32[] get-tuple-element(p), index=3
    d = f32[8,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    eight = u32[] constant(8)
    row = u32[] multiply(i, eight)
    zero = u32[] constant(0)
    u = f32[32,16] dynamic-update-slice(o, d, row, zero)
    next = f32[8,64] collective-permute(a), source_target_pairs={{0,3},{1,0},{2,1},{3,2}}
    one = u32[] constant(1)
    j = u32[] add(i, one)
    ROOT t = (f32[8,64], f32[64,16], f32[32,16], u32[]) tuple(next, b, u, j)
  }
  ENTRY e {
    x = f32[8,64] parameter(0)
    w = f32[64,16] parameter(1)
    z = f32[] constant(0)
    o = f32[32,16] broadcast(z), dimensions={}
    first = u32[] constant(0)
    init = (f32[8,64], f32[64,16], f32[32,16], u32[]) tuple(x, w, o, first)
    loop = (f32[8,64], f32[64,16], f32[32,16], u32[]) while(init), condition=cond, body=body,
      backend_config={"windowed_einsum_loop_config":{"num_partitions":"4"}}
    ROOT r = f32[32,16] get-tuple-element(loop), index=2
  }
"""


def test_a_windowed_einsum_does_the_whole_product_in_its_rounds(ledger_of):
    # The gathered left side would be 32 by 64: four rounds of eight rows each.
    total = ledger_of(WINDOWED).total
    assert (total.low, total.high) == (2 * 32 * 64 * 16, 2 * 32 * 64 * 16)


BRANCHES = f"""
    one {{ p = f32[8,8] parameter(0)
      ROOT d = f32[8,8] {DOT.format(a="p", b="p")} }}
    two {{ p = f32[8,8] parameter(0)
      c = f32[8,8] {DOT.format(a="p", b="p")}
      ROOT d = f32[8,8] {DOT.format(a="c", b="p")} }}
    none {{ p = f32[8,8] parameter(0)  ROOT n = f32[8,8] negate(p) }}
"""


@pytest.mark.parametrize(
    ("branches", "expected"),
    [
        ("one, two", FlopTotal(ONE, 2 * ONE, 2 * ONE)),
        ("one, none", FlopTotal(0, ONE, ONE)),
        ("two, one, none", FlopTotal(0, 2 * ONE, 2 * ONE)),
        ("one, one", FlopTotal(ONE, ONE, ONE)),
    ],
)
def test_a_conditional_is_the_range_over_its_branches(ledger_of, branches, expected):
    operands = ", ".join("x" for _ in branches.split(","))
    ledger = ledger_of(
        program(
            "which = s32[] parameter(1)\n"
            f"ROOT c = f32[8,8] conditional(which, {operands}), branch_computations={{{branches}}}",
            BRANCHES,
        )
    )
    assert ledger.total == expected


def test_an_unknown_custom_call_leaves_the_top_open_and_is_listed(ledger_of):
    ledger = ledger_of(
        program(
            "f = f32[8,8] fusion(x, x), kind=kCustom, calls=product\n"
            'a = f32[8,8] custom-call(f), custom_call_target="mystery"\n'
            'b = f32[8,8] custom-call(a, x), custom_call_target="mystery"\n'
            'ROOT c = f32[8,8] custom-call(b), custom_call_target="Sharding"'
        )
    )
    assert ledger.total == FlopTotal(ONE, None, ONE)
    (group,) = ledger.unknown_calls
    assert (group.target, group.calls, group.times.exact) == ("mystery", 2, 2)
    assert group.operands == ("f32[8,8]",)
    assert ledger.purposes == {"marks how data is laid over devices": 1}
    assert (ledger.custom_calls, ledger.custom_calls_understood) == (3, 1)


def test_a_product_whose_numbers_do_not_fit_is_unknown_rather_than_zero(ledger_of):
    text = program(
        "ROOT d = f32[8,8] dot(x, x), lhs_contracting_dims={5}, rhs_contracting_dims={0}"
    )
    ledger = ledger_of(text)
    (row,) = ledger.rows
    assert row.count.basis is Basis.UNKNOWN
    assert "do not fit" in row.count.note
    assert ledger.total.high is None


def test_an_unbounded_size_is_unknown_rather_than_zero(ledger_of):
    text = program(
        "y = f32[?,8] parameter(1)\n"
        "ROOT d = f32[?,8] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    (row,) = ledger_of(text).rows
    assert row.count.flops is None
    assert row.total == FlopTotal(0, None, 0)


def test_a_bounded_size_is_a_range(ledger_of):
    text = program(
        "y = f32[<=8,8] parameter(1)\n"
        "ROOT d = f32[<=8,8] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert ledger_of(text).total == FlopTotal(0, ONE, ONE)


def test_a_ragged_product_that_a_tpu_writes_dense_is_divided_by_its_groups(ledger_of):
    mark = (
        '{"convolution_algorithm_config":{"emitter":"E","is_ragged_dot":true,'
        '"num_groups_in_ragged_dot":"8"}}'
    )
    dense = f"""HloModule m
    inner {{
      a = bf16[64,16] parameter(0)
      b = bf16[16,256] parameter(1)
      ROOT c = bf16[64,256] convolution(a, b), dim_labels=bf_io->bf
    }}
    ENTRY e {{
      x = bf16[64,16] parameter(0)
      w = bf16[16,256] parameter(1)
      ROOT f = bf16[64,256] fusion(x, w), kind=kOutput, calls=inner, backend_config={mark}
    }}
    """
    (row,) = ledger_of(dense).rows
    assert row.count.flops == 2 * 64 * 16 * 256 // 8
    assert "8 groups" in row.count.note


def test_kinds_add_up_to_the_headline(ledger_of):
    ledger = ledger_of(
        program(
            "f = f32[8,8] fusion(x, x), kind=kCustom, calls=product\n"
            'k = f32[8,8] custom-call(f), custom_call_target="tpu_custom_call", backend_config='
            '{"custom_call_config":{"cost_estimate":{"flops":"100"}}}\n'
            "ROOT g = f32[8,8] fusion(k, x), kind=kCustom, calls=product"
        )
    )
    assert {kind: total.low for kind, total in ledger.by_kind.items()} == {
        Kind.MATMUL: 2 * ONE,
        Kind.KERNEL: 100,
    }
    assert ledger.total.low == 2 * ONE + 100
    assert ledger.total.basis is Basis.MODELLED
    assert ledger.total.quantity("FLOPs").model == "kernel author's estimate"


SCAN = """HloModule m
  step {{ a = f32[8,8] parameter(0)
    c = f32[8,8] parameter(1)
    d = f32[8,8] dot(a, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
    ROOT t = (f32[8,8], f32[8,8]) tuple(d, d) }}
  ENTRY e {{ x = f32[{length},8,8] parameter(0)
    i = f32[8,8] parameter(1)
    ROOT r = (f32[{length},8,8], f32[8,8]) scan(x, i), dimensions={{0}}, num_carries=1,
      to_apply=step }}
"""


def test_a_scan_counts_its_body_as_often_as_it_is_long(ledger_of):
    one, hundred = (ledger_of(SCAN.format(length=length)) for length in (1, 100))
    assert one.total == FlopTotal(ONE, ONE, ONE)
    assert hundred.total == FlopTotal(100 * ONE, 100 * ONE, 100 * ONE)
    assert hundred.rows[0].chain == "r x100"


def test_a_scan_of_jax_counts_a_hundred_times_what_one_step_does(ledger_of):
    jax = pytest.importorskip("jax")
    from hloscope.ir import parse_text

    def total(length):
        def run(carry, weights):
            return jax.lax.scan(lambda c, w: (jax.numpy.tanh(c @ w), None), carry, weights)[0]

        carry = jax.ShapeDtypeStruct((16, 16), jax.numpy.float32)
        weights = jax.ShapeDtypeStruct((length, 16, 16), jax.numpy.float32)
        return ledger_of(parse_text(jax.jit(run).lower(carry, weights).compile().as_text())).total

    assert total(1).low == 2 * 16**3
    assert total(100).low == 100 * total(1).low


def test_a_product_in_a_reducer_counts_as_often_as_it_is_applied(ledger_of):
    text = """HloModule m
      inner { a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT d = f32[] dot(a, b), lhs_contracting_dims={}, rhs_contracting_dims={} }
      ENTRY e { x = f32[4,8] parameter(0)
        z = f32[] constant(1)
        ROOT r = f32[4] reduce(x, z), dimensions={1}, to_apply=inner }
    """
    assert ledger_of(text).total.low == 2 * (32 - 4)


ATTENTION = (
    '{"cudnn_fmha_backend_config":{"intermediate_tensor_shape":{"dimensions":["1","2","8","8"]},'
    '"mask_type":"CAUSAL"}}'
)


def causal_program() -> str:
    return program(
        "q = bf16[1,8,2,4] parameter(1)\n"
        "s = f32[1,2,8] parameter(2)\n"
        "o = (bf16[1,2,8,4], u8[0]) custom-call(q, q, q), "
        f'custom_call_target="__cudnn$fmhaSoftmax", backend_config={ATTENTION}\n'
        "d = (bf16[1,8,2,4], bf16[1,8,2,4], bf16[1,8,2,4], u8[0]) custom-call(q, q, q, s, q, q), "
        f'custom_call_target="__cudnn$fmhaSoftmaxBackward", backend_config={ATTENTION}\n'
        "f = f32[8,8] fusion(x, x), kind=kCustom, calls=product\n"
        "ROOT t = (f32[8,8]) tuple(f)"
    )


DENSE, VISIBLE = 2 * 8 * 8, 2 * 8 * 9 // 2  # pairs of two heads


def test_causal_attention_counts_dense_unless_asked_otherwise(ledger_of):
    full = ledger_of(causal_program())
    assert full.causal == "full"
    assert full.by_kind[Kind.ATTENTION].low == (2 + 5) * 2 * DENSE * 4
    assert full.recomputed.low == 2 * DENSE * 4
    assert full.transcendentals.low == 2 * DENSE


def test_the_half_convention_leaves_out_what_the_mask_hides_and_nothing_else(ledger_of):
    full = ledger_of(causal_program())
    half = full.with_causal("half")
    assert half.by_kind[Kind.ATTENTION].low == (2 + 5) * 2 * VISIBLE * 4
    assert half.total.low == ONE + (2 + 5) * 2 * VISIBLE * 4
    assert half.recomputed.low == 2 * VISIBLE * 4
    assert half.transcendentals.low == 2 * VISIBLE
    assert half.by_kind[Kind.MATMUL] == full.by_kind[Kind.MATMUL]
    assert full.with_causal("full") is full
    assert half.with_causal("half") is half


def test_the_full_count_cannot_be_had_back_from_the_half_one(ledger_of):
    half = ledger_of(causal_program()).with_causal("half")
    with pytest.raises(ValueError, match="the full count"):
        half.with_causal("full")
    with pytest.raises(ValueError, match="'full' or 'half'"):
        half.with_causal("none")


def test_the_half_convention_keeps_unknown_calls_unknown(ledger_of):
    text = causal_program().replace(
        "f = f32[8,8] fusion",
        'm = f32[8,8] custom-call(x), custom_call_target="mystery"\nf = f32[8,8] fusion',
    )
    half = ledger_of(text).with_causal("half")
    assert half.total.high is None
    assert len(half.unknown_calls) == 1


@pytest.mark.parametrize(
    ("name", "op_name", "expected"),
    [
        ("d", "jit(f)/transpose(jvp())/checkpoint/rematted_computation/mlp/dot_general", ONE),
        ("d", "jit(f)/transpose(jvp())/checkpoint/mlp/dot_general", 0),
        ("d", "jit(f)/mlp/dot_general;jit(f)/checkpoint/rematted_computation/dot_general", 0),
        ("d", "jit(f)/not_a_rematted_computation_here/dot_general", 0),
        ("x.remat2", "jit(f)/mlp/dot_general", ONE),  # beside what it repeats, here x
        ("x.remat.1", "jit(f)/mlp/dot_general", ONE),
        ("x.rematerial", "jit(f)/mlp/dot_general", 0),
        ("d.remat", "jit(f)/mlp/dot_general", 0),  # the only one left: it was moved
    ],
)
def test_what_a_checkpoint_repeats_is_told_apart(ledger_of, name, op_name, expected):
    ledger = ledger_of(
        "HloModule m\nENTRY e { x = f32[8,8] parameter(0)\n"
        f"ROOT {name} = f32[8,8] {DOT.format(a='x', b='x')}, "
        f'metadata={{op_name="{op_name}"}} }}'
    )
    assert ledger.total.low == ONE
    assert ledger.recomputed.low == expected


def test_fourier_transforms_and_factorizations_are_in_the_headline(ledger_of):
    ledger = ledger_of(
        "HloModule m\nENTRY e { x = f32[4,16,16] parameter(0)\n"
        "c = f32[4,16,16] cholesky(x), lower=true\n"
        "t = f32[4,16,16] triangular-solve(c, x), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE\n"
        "ROOT f = c64[4,16,9] fft(t), fft_type=RFFT, fft_length={16} }"
    )
    assert {kind: total.low for kind, total in ledger.by_kind.items()} == {
        Kind.LINEAR_ALGEBRA: 4 * 16**3 // 3 + 4 * 16**3,
        Kind.FFT: 4 * 16 * 5 * 16 * 4 // 2,
    }
    assert ledger.total.quantity("FLOPs").model == (
        "2.5 N log2 N for a real transform, potrf n^3/3, trsm n^2 a right-hand side"
    )
