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
