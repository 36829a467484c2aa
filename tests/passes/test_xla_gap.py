"""XLA's rule applied by us against XLA itself, and the way from its figure to the products."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloscope.errors import Unavailable
from hloscope.passes.flop_gap import Reason
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.xla_gap import XlaGap
from hloscope.pipeline.inputs import XlaCost

HELPERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
"""


def module(body, computations=HELPERS):
    return f"HloModule m\n{computations}\nENTRY e {{\n{body}\n}}\n"


LOOP = """
body { p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[8,8] get-tuple-element(p), index=1
  y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[8,8]) tuple(next, y) }
condition { p = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT lt = pred[] compare(i, n), direction=LT }
"""
IN_A_LOOP = module(
    """  x = f32[8,8] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8,8]) tuple(zero, x)
  w = (s32[], f32[8,8]) while(t), condition=condition, body=body
  ROOT r = f32[8,8] get-tuple-element(w), index=1""",
    LOOP,
)
BRANCHES = module(
    """  x = f32[8,8] parameter(0)
  flag = pred[] parameter(1)
  ROOT c = f32[8,8] conditional(flag, x, x), true_computation=dear, false_computation=cheap""",
    """
dear { x = f32[8,8] parameter(0)
  y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[8,8] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
cheap { x = f32[8,8] parameter(0)
  ROOT y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
""",
)
LIBRARY = module("""  a = bf16[4,8] parameter(0)
  b = bf16[8,16] parameter(1)
  c = (bf16[4,16], s8[32]) custom-call(a, b), custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":\
["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}
  s = bf16[4,16] get-tuple-element(c), index=0
  ROOT n = bf16[4,16] negate(s)""")

PROGRAMS = {
    "a loop": IN_A_LOOP,
    "branches": BRANCHES,
    "a library call": LIBRARY,
    "a complex product": module("""  a = c64[4,8] parameter(0)
  b = c64[8,16] parameter(1)
  ROOT d = c64[4,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""),
    "a complex convolution": module("""  a = c64[2,6,3] parameter(0)
  k = c64[3,3,4] parameter(1)
  ROOT c = c64[2,6,4] convolution(a, k), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"""),
    "a transform": module("""  a = c64[4,12,16] parameter(0)
  ROOT f = c64[4,12,16] fft(a), fft_type=FFT, fft_length={12,16}"""),
    "a triangular solve": module("""  a = f32[2,8,8] parameter(0)
  b = f32[2,8,5] parameter(1)
  ROOT s = f32[2,8,5] triangular-solve(a, b), left_side=true, lower=true, \
unit_diagonal=false, transpose_a=NO_TRANSPOSE"""),
    "cholesky": module("""  a = f32[2,9,9] parameter(0)
  ROOT c = f32[2,9,9] cholesky(a), lower=true"""),
    "a reduction": module("""  a = f32[6,10] parameter(0)
  i = f32[] constant(0)
  ROOT r = f32[6] reduce(a, i), dimensions={1}, to_apply=add"""),
    "windows": module("""  a = f32[10,20] parameter(0)
  i = f32[] constant(0)
  ROOT w = f32[10,20] reduce-window(a, i), window={size=1x3 pad=0_0x1_1}, to_apply=add"""),
    "a window over all of it": module("""  a = f32[10,20] parameter(0)
  i = f32[] constant(0)
  ROOT w = f32[10,20] reduce-window(a, i), window={size=1x39 pad=0_0x19_19}, to_apply=add"""),
    "a cumulative sum": module("""  a = f32[10,20] parameter(0)
  i = f32[] constant(0)
  ROOT w = f32[10,20] reduce-window(a, i), window={size=1x20 pad=0_0x19_0}, to_apply=add"""),
    "a sort": module(
        """  a = f32[6,10] parameter(0)
  ROOT s = f32[6,10] sort(a), dimensions={1}, to_apply=less""",
        """
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
""",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_xlas_rule_is_applied_as_xla_applies_it(session_of, xla_flops, name):
    theirs = xla_flops(PROGRAMS[name])
    gap = session_of(PROGRAMS[name], XlaCost({"flops": max(theirs, 0.0)})).get(XlaGap)
    assert gap.by_rule == pytest.approx(theirs, abs=1)
    assert not gap.gap.unexplained or theirs < 0


def parts(session):
    return {part.reason: int(part.flops) for part in session.get(XlaGap).gap.parts}


def test_what_a_loop_adds_is_its_other_iterations(session_of):
    product = 2 * 8 * 8 * 8
    # Once: the product, the counter's addition, and its comparison.
    found = parts(session_of(IN_A_LOOP, XlaCost({"flops": product + 2.0})))
    assert found == {Reason.ELEMENTWISE: -2, Reason.LOOPS: 4 * product}


def test_library_calls_add_their_products_and_xlas_minus_one(session_of):
    product = 2 * 4 * 8 * 16
    found = parts(session_of(LIBRARY, XlaCost({"flops": 4 * 16 - 1.0})))
    assert found == {Reason.ELEMENTWISE: -64, Reason.CUSTOM_CALLS: product + 1}


def test_a_library_call_is_named_with_how_often_it_stands_there(session_of):
    gap = session_of(LIBRARY, XlaCost({"flops": 63.0})).get(XlaGap).gap
    assert [part.evidence for part in gap.parts if part.evidence] == ["__cublas$lt$matmul x1"]


def test_complex_products_count_four_times_as_much_as_xla_has_them(session_of):
    xla = 2.0 * 4 * 8 * 16
    found = parts(session_of(PROGRAMS["a complex product"], XlaCost({"flops": xla})))
    assert found == {Reason.OTHER_RULE: 3 * xla}


def test_a_figure_that_the_rule_does_not_give_is_unexplained(session_of):
    gap = session_of(IN_A_LOOP, XlaCost({"flops": 5000.0})).get(XlaGap).gap
    product = 2 * 8 * 8 * 8
    assert gap.unexplained == 5000 - (product + 2)
    assert gap.residue == gap.unexplained / (5 * product)


@pytest.mark.parametrize("flops", [{}, {"flops": -1.0}])
def test_without_xlas_figure_there_is_no_gap(session_of, flops):
    with pytest.raises(Unavailable, match="no number of FLOPs"):
        session_of(IN_A_LOOP, XlaCost(flops)).get(XlaGap)


@st.composite
def programs(draw):
    """A chain of products, elementwise work and calls of everything above."""
    lines, value = ["  v0 = f32[8,8] parameter(0)"], 0
    for number in range(1, draw(st.integers(1, 8)) + 1):
        kind = draw(st.sampled_from(["dot", "add", "call", "fusion", "while", "unknown"]))
        x, y = f"v{value}", f"v{draw(st.integers(0, value))}"
        made = {
            "dot": f"dot({x}, {y}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            "add": f"add({x}, {y})",
            "call": f"call({x}), to_apply=square",
            "fusion": f"fusion({x}), kind=kLoop, calls=square",
            "unknown": f'custom-call({x}), custom_call_target="mine"',
        }.get(kind)
        if made is None:
            lines += [
                f"  z{number} = s32[] constant(0)",
                f"  t{number} = (s32[], f32[8,8]) tuple(z{number}, {x})",
                f"  w{number} = (s32[], f32[8,8]) while(t{number}), condition=condition, body=body",
            ]
            made = f"get-tuple-element(w{number}), index=1"
        lines.append(f"  v{number} = f32[8,8] {made}")
        value = number
    lines.append(f"  ROOT r = f32[8,8] copy(v{value})")
    square = """
square { x = f32[8,8] parameter(0)
  y = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT n = f32[8,8] negate(y) }
"""
    return module("\n".join(lines), LOOP + square)


@settings(max_examples=150, deadline=None)
@given(programs())
def test_the_parts_sum_up_to_the_difference_and_the_rule_is_xlas(session_of, xla_flops, program):
    theirs = xla_flops(program)
    session = session_of(program, XlaCost({"flops": theirs}))
    ledger = session.get(FlopLedger)
    if theirs < 0:
        return
    found = session.get(XlaGap)
    assert found.by_rule == theirs
    assert theirs + sum(part.flops for part in found.gap.parts) == ledger.total.nominal
    assert not found.gap.unexplained
