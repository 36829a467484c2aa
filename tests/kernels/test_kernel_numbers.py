"""Every implementation of every family against its oracle, on this machine's processor."""

import pytest

from hloscope.kernels import registry
from hloscope.kernels.case import Direction
from hloscope.kernels.measurement import Outcome
from hloscope.kernels.running import measure

FORWARD, BACKWARD = (Direction.FORWARD,), (Direction.BACKWARD,)

# Kernels for TPUs take seconds to compile for the interpreter: those for whom tiles of 128
# rows are the least are asked for little.
ASKED = [
    ("attention", "b1,s16,h4,k2,d16,causal=1,segments=2", "bfloat16", BACKWARD, "reference xla"),
    ("attention", "b1,s16,h2,d16,causal=1,segments=2", "float16", BACKWARD, "flash_gpu"),
    ("attention", "b1,s13,h2,k1,d16,causal=1,pad=16", "bfloat16", FORWARD, "xla flash_gpu"),
    ("attention", "b1,s128,h1,d64", "float32", BACKWARD, "flash_tpu"),
    ("attention", "b1,s100,h2,k1,d64,causal=1,window=9,pad=128", "bfloat16", FORWARD, "splash_tpu"),
    ("attention", "b1,s12,h2,d8,window=3,softcap=2", "float32", BACKWARD, "reference"),
    ("attention", "b1,s12,h2,d8,causal=1,window=3", "float32", FORWARD, "reference xla"),
    ("grouped_matmul", "s32,g4,d16,f8", "bfloat16", BACKWARD, "dense capacity ragged"),
    ("grouped_matmul", "s128,g4,d16,f8", "bfloat16", FORWARD, "megablox"),
    ("rms_norm", "s4,d64", "bfloat16", BACKWARD, ""),
    ("swiglu", "s8,d16,f8", "float16", BACKWARD, ""),
    ("vocabulary_head", "s8,d16,v50", "bfloat16", BACKWARD, ""),
    ("adamw", "s8,d32", "bfloat16", FORWARD, ""),
    ("ssd_scan", "b1,s16,h2,d8,n4,chunk=4", "float32", BACKWARD, ""),
    ("short_convolution", "b2,s12,d8,t3", "bfloat16", BACKWARD, ""),
]


def cases():
    found = []
    for name, shape, dtype, directions, only in ASKED:
        family = registry.get(name)
        sizes, settings = registry.parse_shape(family, shape)
        for direction in directions:
            found += registry.cases_of(
                family,
                sizes=sizes,
                settings=settings,
                dtype=dtype,
                direction=direction,
                implementations=only.split(),
            )
    # cuDNN runs on its own chips only.
    return [case for case in found if case.implementation.name != "cudnn"]


@pytest.fixture(scope="module")
def measured():
    bench = measure(cases(), rounds=3, seconds=0, interpret=True)
    assert bench.platform == "cpu"
    return {row.case.text: row for row in bench.rows}


@pytest.mark.parametrize("text", [case.text for case in cases()])
def test_results_and_gradients_are_as_exact_as_the_dtype(text, measured):
    row = measured[text]
    assert row.reason == ""
    assert row.outcome in (Outcome.MEASURED, Outcome.INTERPRETED)
    names = {error.name for error in row.errors}
    wanted = set(row.case.family.outputs)
    if row.case.direction is Direction.BACKWARD:
        oracle = row.case.family.oracle()
        wanted |= {one.name for one in oracle.operands(row.case) if one.differentiable}
    assert names == wanted
    assert not row.is_wrong, row.errors
    # A bound that everything stays a thousand times below would bound nothing.
    assert max(error.largest / error.bound for error in row.errors) > 1e-3


def test_every_implementation_is_tried():
    tried = {(case.family.name, case.implementation.name) for case in cases()}
    every = {
        (name, one.name) for name in registry.names() for one in registry.get(name).implementations
    }
    assert every - tried == {("attention", "cudnn")}


def test_only_what_was_not_interpreted_is_timed(measured):
    for row in measured.values():
        assert (row.times is not None) == (row.outcome is Outcome.MEASURED)
        assert bool(row.hlo) == (row.outcome is Outcome.MEASURED)
        if row.times is not None:
            assert len(row.times.seconds) == 3
