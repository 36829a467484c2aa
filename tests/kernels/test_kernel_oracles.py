"""The oracles' gradients, worked out by hand, against finite differences of their results."""

import numpy as np
import pytest

from hloscope.kernels import registry
from hloscope.kernels.case import Direction
from hloscope.kernels.operands import draw, in_float64

TINY = {
    "attention": ["b2,s6,h4,k2,d3,causal=1,segments=2,softcap=2", "b1,s7,h1,d3,window=2"],
    "grouped_matmul": ["s9,g3,d4,f5"],
    "rms_norm": ["s3,d5"],
    "swiglu": ["s3,d4,f3"],
    "vocabulary_head": ["s4,d3,v7"],
    "ssd_scan": ["b1,s5,h2,d3,n2"],
    "short_convolution": ["b2,s7,d3,t3"],
}


def case_of(name, shape):
    family = registry.get(name)
    sizes, settings = registry.parse_shape(family, shape)
    return registry.cases_of(family, sizes=sizes, settings=settings, dtype="float32")[0]


def test_every_family_with_gradients_is_tried():
    with_gradients = {
        name for name in registry.names() if Direction.BACKWARD in registry.get(name).directions
    }
    assert set(TINY) == with_gradients


@pytest.mark.parametrize(
    ("name", "shape"), [(name, shape) for name, shapes in TINY.items() for shape in shapes]
)
def test_gradients_are_the_slopes_of_the_result(name, shape):
    case = case_of(name, shape)
    oracle = case.family.oracle()
    generator = np.random.default_rng(3)
    values = in_float64(draw(oracle.operands(case), case.dtype, generator))
    first = case.family.outputs[0]
    cotangent = generator.standard_normal(oracle.results(case, values)[first].shape)
    gradients = oracle.gradients(case, values, cotangent)

    def loss(name, moved):
        return np.sum(oracle.results(case, {**values, name: moved})[first] * cotangent)

    differentiable = [one.name for one in oracle.operands(case) if one.differentiable]
    assert set(gradients) == set(differentiable)
    for operand in differentiable:
        for _ in range(4):
            along = generator.standard_normal(values[operand].shape)
            step = 1e-5 * along
            slope = loss(operand, values[operand] + step) - loss(operand, values[operand] - step)
            assert slope / 2e-5 == pytest.approx(np.sum(gradients[operand] * along), rel=1e-6)


def test_uneven_groups_cover_every_row_and_leave_room():
    case = case_of("grouped_matmul", "s64,g4,d1,f1")
    oracle = case.family.oracle()
    for seed in range(20):
        sizes = draw(oracle.operands(case), case.dtype, np.random.default_rng(seed))["sizes"]
        assert sizes.sum() == 64
        assert sizes.min() >= 0
        assert sizes.max() <= 24


def test_packed_rows_hold_as_many_documents_as_asked():
    case = case_of("attention", "b3,s16,h1,d2,segments=4")
    oracle = case.family.oracle()
    rows = draw(oracle.operands(case), case.dtype, np.random.default_rng(0))["segments"]
    assert (rows.max(axis=1) == 3).all()
    assert (np.diff(rows, axis=1) >= 0).all()
