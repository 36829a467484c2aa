"""Reasons for what the HLO has more or less than the jaxpr, on built modules and counts."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloscope.ir.jaxpr_count import JaxprCount, JaxprFlops, JaxprSite
from hloscope.passes.flop_gap import Gap, GapPart, Reason
from hloscope.passes.jaxpr_gap import JaxprGap
from hloscope.passes.multiplied_out import MultipliedOut

N = 16
PRODUCT = 2 * N * N * N


def dot(name, line=1, *, scope="jit(f)/dot_general", size=N, root=False):
    """A product of an N x N matrix with an N x size one, or without metadata for line 0."""
    metadata = f', metadata={{op_name="{scope}" source_file="f.py" source_line={line}}}'
    return (
        f"  {'ROOT ' if root else ''}{name} = f32[{N},{size}] dot(x, w{size}), "
        f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{metadata if line else ''}"
    )


def program(*lines, partitions=1):
    sizes = (N, 2 * N, 3 * N, 4 * N, 8 * N, N + 1)
    weights = [f"  w{size} = f32[{N},{size}] parameter({n + 1})" for n, size in enumerate(sizes)]
    body = "\n".join([f"  x = f32[{N},{N}] parameter(0)", *weights, *lines])
    return (
        f"HloModule m, num_partitions={partitions}\n"
        "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b) }\n"
        f"ENTRY e {{\n{body}\n  ROOT root = f32[{N},{N}] copy(x)\n}}\n"
    )


def site(line=1, runs=1, *, backward=False, again=False, each=PRODUCT, dead=0, repeated=0):
    return JaxprSite("matmul", "f.py", line, backward, again, each, runs, dead, repeated)


def count(*sites):
    total = sum(each.flops for each in sites)
    flops = JaxprFlops(total, total, total)
    again = sum(each.flops for each in sites if each.recomputed)
    return JaxprCount(flops, {"matmul": flops}, JaxprFlops(again, again, again), sites)


@pytest.fixture
def parts_of(session_of):
    def parts(text, *sites):
        gap = session_of(text, count(*sites)).get(JaxprGap).gap
        return {part.reason: part.flops for part in gap.parts}

    return parts


BACKWARD = "jit(f)/transpose(jvp(f))/dot_general"
AGAIN = "jit(f)/transpose(jvp(f))/checkpoint/rematted_computation/dot_general"


def test_what_stands_on_both_sides_needs_no_reason(parts_of):
    text = program(dot("a"), dot("b", scope=BACKWARD), dot("c", scope=AGAIN))
    sites = site(), site(backward=True), site(backward=True, again=True)
    assert parts_of(text, *sites) == {}


def test_products_of_one_line_that_were_merged_into_one_need_no_reason(parts_of):
    assert parts_of(program(dot("qkv", size=3 * N)), site(runs=3)) == {}


def test_products_of_several_lines_that_were_merged_into_one_need_no_reason(parts_of):
    text = program(dot("qkv", 1, size=3 * N))
    assert parts_of(text, site(1), site(2), site(3)) == {}


def test_two_merges_of_several_lines_are_told_apart_by_what_stands_next(parts_of):
    text = program(dot("qkv", 1, size=3 * N), dot("mlp", 11, size=2 * N))
    assert parts_of(text, *map(site, (1, 2, 3, 11, 12))) == {}


def test_a_product_that_lost_its_source_is_known_by_its_size(parts_of):
    assert parts_of(program(dot("a", 0)), site(backward=True)) == {}
    found = parts_of(program(dot("a", 0, size=2 * N)), site())
    assert found == {Reason.NOT_IN_JAXPR: 2 * PRODUCT, Reason.NOT_IN_HLO: -PRODUCT}


def test_as_many_products_that_are_larger_were_padded(parts_of):
    larger = 2 * N * N * (N + 1) - PRODUCT
    assert parts_of(program(dot("a", size=N + 1)), site()) == {Reason.PADDING: larger}


@pytest.mark.parametrize(("line", "scope"), [(0, ""), (1, "jit(f)/jvp(f)/dot_general")])
def test_a_padded_product_without_its_source_or_its_pass_was_padded(parts_of, line, scope):
    text = program(dot("a", line, size=N + 1, scope=scope), dot("b", scope=BACKWARD, size=N + 1))
    larger = 2 * N * N * (N + 1) - PRODUCT
    assert parts_of(text, site(runs=2, backward=True)) == {Reason.PADDING: 2 * larger}


def test_a_lost_padded_product_goes_where_the_nearest_size_is_missing(parts_of):
    text = program(dot("a", 0, size=N + 1), dot("mlp", 5, size=2 * N))
    near, far = 2 * N * N * (N + 1) - 8, 2 * N * N * (N + 1) - 500
    merged = site(5, each=4 * N * N * N - far), site(7, each=far)
    assert parts_of(text, *merged, site(9, each=near)) == {Reason.PADDING: 8}


def test_a_product_of_another_pass_that_is_not_missing_stays_where_it_is(parts_of):
    text = program(dot("a", size=N + 1), dot("b", scope=BACKWARD))
    larger = 2 * N * N * (N + 1) - PRODUCT
    assert parts_of(text, site(), site(backward=True)) == {Reason.PADDING: larger}


def test_a_ragged_product_over_all_groups_is_told_by_its_mask(parts_of):
    groups, rows = 4, 8
    text = f"""HloModule m
ENTRY e {{
  x = f32[{rows},{N}] parameter(0)
  w = f32[{groups},{N},{N}] parameter(1)
  starts = s32[{groups}] parameter(2)
  ends = s32[{groups}] parameter(3)
  place = s32[{groups},{rows},{N}] iota(), iota_dimension=1
  start = s32[{groups},{rows},{N}] broadcast(starts), dimensions={{0}}
  end = s32[{groups},{rows},{N}] broadcast(ends), dimensions={{0}}
  behind = pred[{groups},{rows},{N}] compare(place, start), direction=GE
  before = pred[{groups},{rows},{N}] compare(place, end), direction=LT
  mask = pred[{groups},{rows},{N}] and(behind, before)
  zero = f32[] constant(0)
  zeros = f32[{groups},{rows},{N}] broadcast(zero), dimensions={{}}
  copies = f32[{groups},{rows},{N}] broadcast(x), dimensions={{1,2}}
  masked = f32[{groups},{rows},{N}] select(mask, copies, zeros)
  ROOT d = f32[{rows},{N}] dot(masked, w), lhs_contracting_dims={{0,2}}, \
rhs_contracting_dims={{0,1}}, \
metadata={{op_name="jit(f)/ragged_dot" source_file="f.py" source_line=1}}
}}
"""
    useful = 2 * rows * N * N
    assert parts_of(text, site(each=useful)) == {Reason.DENSE_RAGGED: (groups - 1) * useful}


def test_more_products_than_the_jaxpr_has_are_unexplained(session_of):
    gap = session_of(program(dot("a"), dot("b")), count(site())).get(JaxprGap).gap
    assert [(part.reason, part.flops) for part in gap.parts] == [(Reason.NOT_IN_JAXPR, PRODUCT)]
    assert gap.unexplained == PRODUCT
    assert gap.residue == Fraction(1, 2)


def test_products_that_xla_cloned_are_its_own_recomputation(parts_of):
    found = parts_of(program(dot("a"), dot("a.remat")), site())
    assert found == {Reason.XLA_REMAT: PRODUCT}


def test_dead_and_repeated_products_are_missing_for_a_reason(parts_of):
    found = parts_of(program(dot("a")), site(runs=4, dead=1, repeated=2))
    assert found == {Reason.DEAD_CODE: -PRODUCT, Reason.MERGED: -2 * PRODUCT}


@pytest.mark.parametrize("kept", ["jit(f)/jvp(f)/dot_general", AGAIN])
def test_recomputation_that_was_merged_away_keeps_either_name(parts_of, kept):
    found = parts_of(program(dot("a", scope=kept)), site(), site(backward=True, again=True))
    assert found == {Reason.REMAT_UNDONE: -PRODUCT}


def test_a_product_that_is_missing_without_a_reason_is_unexplained(parts_of):
    assert parts_of(program(), site()) == {Reason.NOT_IN_HLO: -PRODUCT}


def test_no_more_is_put_down_to_a_reason_than_there_is_evidence_of(parts_of):
    found = parts_of(program(), site(runs=3, dead=1))
    assert found == {Reason.DEAD_CODE: -PRODUCT, Reason.NOT_IN_HLO: -2 * PRODUCT}


def test_each_device_has_its_share(session_of):
    text = program(dot("a"), partitions=4)
    found = session_of(text, count(site(each=4 * PRODUCT))).get(JaxprGap)
    assert (found.devices, found.jaxpr) == (4, PRODUCT)
    assert found.gap.parts == ()


@pytest.mark.parametrize(("size", "factor"), [(2 * N, 2), (4 * N, 4)])
def test_products_that_are_split_over_fewer_devices_are_told(parts_of, size, factor):
    found = parts_of(program(dot("a", size=size), partitions=4), site(each=4 * PRODUCT))
    assert found == {Reason.REPLICATED: (factor - 1) * PRODUCT}


def test_more_work_than_all_devices_would_repeat_is_no_replication(parts_of):
    found = parts_of(program(dot("a", size=8 * N), partitions=4), site(each=4 * PRODUCT))
    assert found == {Reason.PADDING: 7 * PRODUCT}


MULTIPLIED = f"""  m = f32[{N},{N},{N}] broadcast(x), dimensions={{0,1}}
  p = f32[{N},{N},{N}] multiply(m, m), metadata={{op_name="jit(f)/dot_general" source_file="f.py" \
source_line=1}}
  zero = f32[] constant(0)
  s = f32[{N},{N}] reduce(p, zero), dimensions={{2}}, to_apply=add, \
metadata={{op_name="jit(f)/dot_general" source_file="f.py" source_line=1}}"""


def test_a_product_written_as_a_multiplication_and_a_sum_is_found(session_of, parts_of):
    assert parts_of(program(MULTIPLIED), site()) == {Reason.MULTIPLIED_OUT: -PRODUCT}
    flops = session_of(program(MULTIPLIED)).get(MultipliedOut).flops
    assert {each.name: number for each, number in flops.items()} == {"s": PRODUCT}


def test_the_sum_of_a_split_product_is_no_product(session_of):
    split = f"""  d = f32[{N},{N},{N}] broadcast(x), dimensions={{0,1}}, \
metadata={{op_name="jit(f)/dot_general"}}
  zero = f32[] constant(0)
  s = f32[{N},{N}] reduce(d, zero), dimensions={{2}}, to_apply=add, \
metadata={{op_name="jit(f)/dot_general"}}"""
    assert session_of(program(split)).get(MultipliedOut).flops == {}


def test_a_custom_call_of_unknown_cost_at_the_line_is_named_but_explains_nothing(session_of):
    call = (
        f'  c = f32[{N},{N}] custom-call(x), custom_call_target="mine", '
        'metadata={op_name="jit(f)/dot_general" source_file="f.py" source_line=1}'
    )
    gap = session_of(program(call), count(site())).get(JaxprGap).gap
    assert [(part.reason, part.flops) for part in gap.parts] == [(Reason.UNKNOWN_CALLS, -PRODUCT)]
    assert gap.unexplained == PRODUCT


def test_parts_that_do_not_sum_up_to_the_difference_are_refused():
    with pytest.raises(ValueError, match="do not sum up"):
        Gap(Fraction(1), Fraction(3), (GapPart(Reason.PADDING, Fraction(1)),))


products = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["jit(f)/dot_general", BACKWARD, AGAIN]),
        st.sampled_from([N, 2 * N, 3 * N, 4 * N, N + 1]),
        st.booleans(),
    ),
    max_size=8,
)
sites = st.lists(
    st.builds(
        site,
        st.integers(1, 3),
        st.integers(1, 4),
        backward=st.booleans(),
        again=st.booleans(),
        each=st.sampled_from([PRODUCT, 2 * PRODUCT, 4 * PRODUCT, PRODUCT + 1]),
        dead=st.integers(0, 2),
        repeated=st.integers(0, 2),
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(products, sites, st.sampled_from([1, 2, 3, 8]))
def test_the_reasons_always_sum_up_to_the_difference(session_of, products, sites, devices):
    lines = [
        dot(f"d{n}.remat" if cloned else f"d{n}", line, scope=scope, size=size)
        for n, (line, scope, size, cloned) in enumerate(products)
    ]
    found = session_of(program(*lines, partitions=devices), count(*sites)).get(JaxprGap)
    gap = found.gap
    assert gap.after == sum(2 * N * N * size for _, _, size, _ in products)
    assert gap.before * devices == sum(each.flops for each in sites)
    assert gap.before + sum(part.flops for part in gap.parts) == gap.after
