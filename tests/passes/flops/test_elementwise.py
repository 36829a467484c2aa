"""Work beside the products, held against XLA's HloCostAnalysis."""

import pytest
from oracles.custom_call_texts import custom_call

from hloscope.ir import Module
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.custom_calls import elementwise_work
from hloscope.passes.flops.elementwise import (
    _ARITHMETIC,
    _NO_ARITHMETIC,
    _TRANSCENDENTAL,
    ElementwiseLedger,
)
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.flops.totals import FlopTotal
from hloscope.pipeline.findings import Basis


@pytest.fixture(scope="session")
def elementwise_of(session_of):
    return lambda program: session_of(program).get(ElementwiseLedger)


@pytest.fixture(scope="session")
def both_of(session_of):
    """FLOPs and transcendentals of a whole program, each branch and each loop taken once."""

    def both(program: str | Module) -> tuple[int, int]:
        session = session_of(program)
        products, rest = session.get(FlopLedger), session.get(ElementwiseLedger)
        return (
            products.total.nominal + rest.total.nominal,
            products.transcendentals.nominal + rest.transcendentals.nominal,
        )

    return both


@pytest.fixture(scope="session")
def xla_both():
    """FLOPs and transcendentals by XLA's generic ``HloCostAnalysis``."""
    jax = pytest.importorskip("jax")
    from jaxlib import _hlo, _jax

    client = jax.devices("cpu")[0].client

    def both(text: str) -> tuple[float, float]:
        cost = _jax.hlo_module_cost_analysis(client, _hlo.hlo_module_from_text(text))
        return cost.get("flops", 0.0), cost.get("transcendentals", 0.0)

    return both


INTEGER = frozenset(
    """and count-leading-zeros mulhi not or popcnt shift-left shift-right-arithmetic
    shift-right-logical xor""".split()  # noqa: SIM905
)
BINARY = frozenset(
    """add and atan2 compare complex divide maximum minimum mulhi multiply or power remainder
    shift-left shift-right-arithmetic shift-right-logical stochastic-convert subtract
    xor""".split()  # noqa: SIM905
)
SHAPES = {  # result and first operand, where they are not float32
    "bitcast-convert": ("f32", "u32"),
    "compare": ("pred", "f32"),
    "is-finite": ("pred", "f32"),
    "complex": ("c64", "f32"),
    "real": ("f32", "c64"),
    "imag": ("f32", "c64"),
    "select": ("f32", "pred"),
    "convert": ("bf16", "f32"),
    "stochastic-convert": ("bf16", "f32"),
}
MORE = {
    "compare": ", direction=LT",
    "reduce-precision": ", exponent_bits=8, mantissa_bits=7",
}


def one(opcode: str) -> str:
    """A module with one elementwise instruction over three by five elements."""
    default = "s32" if opcode in INTEGER else "f32"
    result, first = SHAPES.get(opcode, (default, default))
    count = 2 if opcode in BINARY else 3 if opcode in ("clamp", "select") else 1
    rest = "u32" if opcode == "stochastic-convert" else default
    dtypes = [first] + [rest] * (count - 1)
    lines = "\n".join(f"p{n} = {dtype}[3,5] parameter({n})" for n, dtype in enumerate(dtypes))
    names = ", ".join(f"p{n}" for n in range(count))
    return (
        f"HloModule m\n\nENTRY e {{\n{lines}\n"
        f"ROOT r = {result}[3,5] {opcode}({names}){MORE.get(opcode, '')}\n}}\n"
    )


@pytest.mark.parametrize("opcode", sorted(_ARITHMETIC | _TRANSCENDENTAL))
def test_every_elementwise_opcode_counts_as_xla_counts_it(opcode, both_of, xla_both):
    text = one(opcode)
    try:
        expected = xla_both(text)
    except Exception as error:  # an older XLA does not know it
        if "opcode" not in str(error):
            raise
        pytest.skip(f"this XLA has no {opcode}")
    assert both_of(text) == expected
    assert expected == ((0, 15) if opcode in _TRANSCENDENTAL else (15, 0))


def test_no_opcode_stands_in_two_tables():
    assert not _ARITHMETIC & _TRANSCENDENTAL
    assert not (_ARITHMETIC | _TRANSCENDENTAL) & _NO_ARITHMETIC


LSE = """
  lse { a = f32[] parameter(0)  b = f32[] parameter(1)
    e = f32[] exponential(a)  m = f32[] multiply(e, b)  ROOT c = f32[] add(m, b) }
  ge { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=GE }
"""
CASES = {
    # (4*8 - 4) applications of two FLOPs and an exponential.
    "reduce": (
        "x = f32[4,8] parameter(0)\nz = f32[] constant(0)\n"
        "ROOT r = f32[4] reduce(x, z), dimensions={1}, to_apply=lse",
        (2 * 28, 28),
    ),
    "map": (
        "x = f32[4,8] parameter(0)\nROOT r = f32[4,8] map(x, x), dimensions={0,1}, to_apply=lse",
        (2 * 32, 32),
    ),
    # Two updates of a row of eight.
    "scatter": (
        "x = f32[4,8] parameter(0)\ni = s32[2,1] parameter(1)\nu = f32[2,8] parameter(2)\n"
        "ROOT r = f32[4,8] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=lse",
        (2 * 16, 16),
    ),
    # Windows of three: two applications for each of 32 results, the padding's among them.
    "reduce-window": (
        "x = f32[4,8] parameter(0)\nz = f32[] constant(0)\nROOT r = f32[4,8] reduce-window(x, z), "
        "window={size=1x3 pad=0_0x1_1}, to_apply=lse",
        (2 * 64, 64),
    ),
    # Eight windows of four: three selections each, and one scatter.
    "select-and-scatter": (
        "x = f32[4,8] parameter(0)\nu = f32[2,4] parameter(1)\nz = f32[] constant(0)\n"
        "ROOT r = f32[4,8] select-and-scatter(x, u, z), window={size=2x2 stride=2x2}, "
        "select=ge, scatter=lse",
        (3 * 8 + 2 * 8, 8),
    ),
    "all-reduce": (
        "x = f32[4,8] parameter(0)\n"
        "ROOT r = (f32[4,8], f32[4,8]) all-reduce(x, x), replica_groups={}, to_apply=lse",
        (64, 0),
    ),
    "all-reduce-start": (
        "x = f32[4,8] parameter(0)\n"
        "s = f32[4,8] all-reduce-start(x), replica_groups={}, to_apply=lse\n"
        "ROOT r = f32[4,8] all-reduce-done(s)",
        (32, 0),
    ),
    "reduce-scatter": (
        "x = f32[4,8] parameter(0)\nROOT r = f32[2,8] reduce-scatter(x), "
        "replica_groups={{0,1}}, dimensions={0}, to_apply=lse",
        (0, 0),
    ),
    "rng": (
        "x = f32[] parameter(0)\nROOT r = f32[4,8] rng(x, x), distribution=rng_uniform",
        (0, 32),
    ),
    "rng-bit-generator": (
        "x = u64[2] parameter(0)\n"
        "ROOT r = (u64[2], u32[7]) rng-bit-generator(x), algorithm=rng_three_fry",
        (0, 9),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_applies_a_computation_counts_as_xla_counts_it(case, both_of, xla_both):
    body, expected = CASES[case]
    text = f"HloModule m\n{LSE}\nENTRY e {{\n{body}\n}}\n"
    assert both_of(text) == expected
    assert xla_both(text) == expected


SORT = """HloModule m
  lt {{ a = f32[] parameter(0)  b = f32[] parameter(1)
    ROOT c = pred[] compare(a, b), direction=LT }}
  ENTRY e {{ x = f32[{rows},{length}] parameter(0)
    ROOT r = f32[{rows},{length}] sort(x), dimensions={{1}}, to_apply=lt }}
"""


@pytest.mark.parametrize(("length", "log"), [(1, 0), (2, 1), (8, 3), (9, 4), (1000, 10)])
def test_a_sort_makes_comparisons_row_by_row(elementwise_of, length, log):
    ledger = elementwise_of(SORT.format(rows=4, length=length))
    assert ledger.by_kind[Kind.OTHER].low == 4 * length * log
    assert ledger.total.basis is Basis.MODELLED


def test_xla_sorts_all_rows_as_one(xla_flops):
    assert xla_flops(SORT.format(rows=4, length=8)) == 32 * 5


def test_a_top_k_is_a_heap(elementwise_of):
    ledger = elementwise_of(
        "HloModule m\nENTRY e { x = f32[4,8] parameter(0)\n"
        "ROOT r = (f32[4,3], s32[4,3]) topk(x), k=3, largest=true }"
    )
    assert ledger.total.low == 4 * 8 * 2


def test_an_opcode_of_tomorrow_leaves_the_top_open(elementwise_of):
    ledger = elementwise_of(
        "HloModule m\nENTRY e { x = f32[4] parameter(0)\ny = f32[4] negate(x)\n"
        "ROOT r = f32[4] flux-capacitate(y) }"
    )
    assert ledger.total == FlopTotal(4, None, 4)
    row = ledger.rows[-1]
    assert (row.count.basis, row.count.note) == (
        Basis.UNKNOWN,
        "no rule for the opcode flux-capacitate",
    )


def test_a_batch_norm_that_is_not_expanded_is_unknown(elementwise_of):
    text = (
        "HloModule m\nENTRY e { x = f32[4,8] parameter(0)\ns = f32[8] parameter(1)\n"
        "ROOT r = (f32[4,8], f32[8], f32[8]) batch-norm-training(x, s, s), epsilon=0.1, "
        "feature_index=1 }"
    )
    assert elementwise_of(text).total.high is None


def test_sizes_known_as_bounds_make_a_range_and_unknown_ones_unknown(elementwise_of):
    text = "HloModule m\nENTRY e {{ x = f32[{size},4] parameter(0)\nROOT r = {result} {op}(x) }}"
    bounded = text.format(size="<=8", result="f32[<=8,4]", op="negate")
    assert elementwise_of(bounded).total == FlopTotal(0, 32, 32)
    unbounded = text.format(size="?", result="f32[?,4]", op="negate")
    assert elementwise_of(unbounded).total == FlopTotal(0, None, 0)


LOOP = """HloModule m
  add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
  fused { p = f32[8,8] parameter(0)  e = f32[8,8] exponential(p)
    ROOT m = f32[8,8] multiply(e, p) }
  cond { p = (s32[], f32[8,8]) parameter(0)  i = s32[] get-tuple-element(p), index=0
    n = s32[] constant(10)  ROOT go = pred[] compare(i, n), direction=LT }
  body { p = (s32[], f32[8,8]) parameter(0)  i = s32[] get-tuple-element(p), index=0
    one = s32[] constant(1)  next = s32[] add(i, one)
    m = f32[8,8] get-tuple-element(p), index=1
    f = f32[8,8] fusion(m), kind=kLoop, calls=fused
    ROOT t = (s32[], f32[8,8]) tuple(next, f) }
  ENTRY e { x = f32[8,8] parameter(0)  zero = s32[] constant(0)
    init = (s32[], f32[8,8]) tuple(zero, x)
    w = (s32[], f32[8,8]) while(init), condition=cond, body=body
    y = f32[8,8] get-tuple-element(w), index=1
    z = f32[] constant(0)
    ROOT r = f32[] reduce(y, z), dimensions={0,1}, to_apply=add }
"""


def test_a_loops_body_counts_as_often_as_it_runs_and_its_condition_once_more(
    elementwise_of, xla_both
):
    ledger = elementwise_of(LOOP)
    assert ledger.by_kind[Kind.ELEMENTWISE].low == 10 * (64 + 1) + 11
    assert ledger.by_kind[Kind.REDUCTION].low == 63
    assert ledger.transcendentals == FlopTotal(640, 640, 640)
    # XLA takes body and condition once each.
    assert xla_both(LOOP) == (64 + 1 + 1 + 63, 64)


def test_a_row_says_where_it_stands_and_how_often_it_runs(elementwise_of):
    rows = {row.instruction.name: row for row in elementwise_of(LOOP).rows}
    assert (rows["e"].chain, rows["e"].times.exact) == ("w x10 -> f", 10)
    assert (rows["e"].count.flops, rows["e"].count.transcendentals) == (0, 64)
    assert rows["m"].count.dtypes == ("f32",)
    # The reducer's addition stands with the reduction that applies it.
    assert "c" not in rows
    assert rows["r"].count.kind is Kind.REDUCTION


@pytest.mark.parametrize(
    ("target", "config", "flops", "exponentials"),
    [
        ("__cudnn$norm", '{"cudnn_norm_backend_config":{"kind":"LAYER_FWD_TRAIN"}}', 7, 0),
        ("__cudnn$norm", '{"cudnn_norm_backend_config":{"kind":"LAYER_BWD"}}', 13, 0),
        ("__onednn$layernorm", "", 7, 0),
        ("__onednn$softmax", "", 4, 1),
        ("te_scaled_masked_softmax_forward_ffi", "", 5, 1),
        ("te_scaled_softmax_backward_ffi", "", 5, 0),
    ],
)
def test_normalizing_calls_count_so_many_an_element(target, config, flops, exponentials):
    count = elementwise_work(custom_call("f32[4,8]", "(f32[4,8], u8[0])", target, config))
    assert (count.kind, count.flops, count.basis) == (
        Kind.ELEMENTWISE,
        32 * flops,
        Basis.MODELLED,
    )
    assert count.transcendentals == 32 * exponentials


@pytest.mark.parametrize("target", ["Sharding", "MoveToHost", "TopK", "__cublas$gemm"])
def test_calls_without_elementwise_work_of_their_own_add_nothing(target):
    assert elementwise_work(custom_call("f32[4,8]", "f32[4,8]", target)) is None


@pytest.mark.parametrize("target", ["mystery", "te_act_lu_ffi", "cu_threefry2x32_ffi"])
def test_calls_that_compute_without_a_model_leave_the_top_open(elementwise_of, target):
    text = (
        "HloModule m\nENTRY e { x = f32[4] parameter(0)\ny = f32[4] negate(x)\n"
        f'ROOT r = f32[4] custom-call(y), custom_call_target="{target}" }}'
    )
    assert elementwise_of(text).total == FlopTotal(4, None, 4)


def test_a_computation_that_is_both_called_and_applied_is_not_counted_twice(
    elementwise_of, xla_both
):
    text = """HloModule m
      add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[16] parameter(0)  z = f32[] constant(0)
        s = f32[] reduce(x, z), dimensions={0}, to_apply=add
        ROOT r = f32[] call(s, s), to_apply=add }
    """
    assert elementwise_of(text).total == FlopTotal(16, 16, 16)
    assert xla_both(text)[0] == 16
