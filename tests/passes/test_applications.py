"""How often a small computation is applied, and what that makes of its multiplicity."""

import pytest

from hloscope.ir import parse_text
from hloscope.passes.applications import applications, scan_length
from hloscope.passes.multiplicity import Multiplicity, Times

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }"


def root(body: str):
    return parse_text(f"HloModule m\n{ADD}\nENTRY e {{\n{body}\n}}").entry.root


def test_a_variadic_reduction_applies_its_reducer_once_for_all_its_operands():
    reduce = root(
        "x = f32[4,8] parameter(0)\nz = f32[] constant(0)\n"
        "ROOT r = (f32[4], f32[4]) reduce(x, x, z, z), dimensions={1}, to_apply=add"
    )
    assert applications(reduce) == 32 - 4


def test_a_variadic_scatter_applies_its_update_to_the_first_updates():
    scatter = root(
        "x = f32[4,8] parameter(0)\ni = s32[2,1] parameter(1)\nu = f32[2,8] parameter(2)\n"
        "ROOT r = (f32[4,8], f32[4,8]) scatter(x, x, i, u, u), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=add"
    )
    assert applications(scatter) == 16


def test_how_often_a_sort_compares_depends_on_the_data():
    sort = root("x = f32[8] parameter(0)\nROOT r = f32[8] sort(x), dimensions={0}, to_apply=add")
    assert applications(sort) is None


@pytest.mark.parametrize(
    ("operands", "result", "attributes", "expected"),
    [
        ("f32[4,8]; f32[8]", "(f32[4,8], f32[8])", "dimensions={0}, num_carries=1", 4),
        ("f32[8,4]; f32[8]", "(f32[8,4], f32[8])", "dimensions={1}, num_carries=1", 4),
        # Nothing is taken apart: the length is that of what is stacked up.
        ("f32[8]", "(f32[6,8], f32[8])", "dimensions={0}, num_carries=1", 6),
    ],
)
def test_a_scan_is_as_long_as_the_dimension_that_it_runs_along(
    operands, result, attributes, expected
):
    shapes = operands.split("; ")
    lines = "\n".join(f"p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    scan = root(f"{lines}\nROOT r = {result} scan({names}), {attributes}, to_apply=add")
    assert scan_length(scan) == expected


def test_a_reducer_runs_as_often_as_all_its_callers_apply_it(session_of):
    times = session_of(
        f"""HloModule m
        {ADD}
        ENTRY e {{
          x = f32[4,8] parameter(0)
          z = f32[] constant(0)
          r = f32[4] reduce(x, z), dimensions={{1}}, to_apply=add
          ROOT s = f32[] reduce(r, z), dimensions={{0}}, to_apply=add
        }}"""
    ).get(Multiplicity)
    (add,) = (computation for computation in times if computation.name == "add")
    assert times[add] == Times(28 + 3, 28 + 3, 28 + 3)


def test_a_comparator_runs_an_unknown_number_of_times(session_of):
    times = session_of(
        f"""HloModule m
        {ADD}
        ENTRY e {{ x = f32[8] parameter(0)
          ROOT r = f32[8] sort(x), dimensions={{0}}, to_apply=add }}"""
    ).get(Multiplicity)
    (add,) = (computation for computation in times if computation.name == "add")
    assert times[add].high is None
