"""Every implementation of every family against its oracle, on this machine's processor.

Pallas kernels run interpreted. By default each implementation gives its gradients in
bfloat16, and those that are not interpreted their results in float32 too;
``HLOSCOPE_TEST_EVERYTHING`` tries every dtype in every direction.
"""

import os

import pytest

from hloscope.kernels import registry
from hloscope.kernels.case import Direction
from hloscope.kernels.measurement import Outcome
from hloscope.kernels.running import measure

EVERYTHING = bool(os.environ.get("HLOSCOPE_TEST_EVERYTHING"))

# Kernels for TPUs take seconds to compile for the interpreter: those for whom tiles of 128
# rows are the least are asked for little.
ASKED = [
    ("attention", "b1,s16,h4,k2,d16,causal=1,segments=2", "reference xla flash_gpu"),
    ("attention", "b1,s16,h4,k2,d16,causal=1,segments=2", "tokamax_chunked"),
    ("attention", "b1,s128,h1,d64", "flash_tpu"),
    ("attention", "b1,s100,h2,k1,d64,causal=1,window=9,pad=128", "splash_tpu"),
    ("grouped_matmul", "s32,g4,d16,f8", "dense capacity ragged"),
    ("grouped_matmul", "s128,g4,d16,f8", "megablox"),
    ("rms_norm", "s4,d64", "reference narrow pallas_gpu"),
    ("swiglu", "s8,d16,f8", "two fused"),
    ("vocabulary_head", "s8,d16,v50", "full full_float32 chunked chunked_float32"),
    ("adamw", "s8,d32", "float32 nearest hash threefry"),
    ("ssd_scan", "b1,s32,h2,d16,n16,chunk=16", "sequential chunked pallas_gpu pallas_tpu"),
    ("short_convolution", "b2,s12,d8,t3", "scan compacted"),
]

# Shapes that take other paths through a kernel.
BESIDE = [
    ("attention", "b1,s13,h2,k1,d16,causal=1,pad=16", "bfloat16", "xla flash_gpu"),
    ("attention", "b1,s12,h2,d8,window=3,softcap=2", "float32", "reference tokamax_chunked"),
    ("attention", "b1,s12,h2,d8,causal=1,window=3", "float32", "reference xla"),
    ("ssd_scan", "b2,s48,h1,d64,n16,chunk=16", "float32", "pallas_gpu"),
]

NOT_HERE = {
    ("attention", "cudnn"): "cuDNN runs on its own chips",
    ("attention", "tokamax_triton"): "tokamax asks for the chip that is attached",
    ("attention", "tokamax_mosaic_gpu"): "tokamax asks for the chip that is attached",
    ("attention", "tokamax_mosaic_tpu"): "tokamax asks for the chip that is attached",
    ("grouped_matmul", "tokamax_triton"): "tokamax asks for the chip that is attached",
    ("grouped_matmul", "tokamax_mosaic_gpu"): "tokamax asks for the chip that is attached",
    ("grouped_matmul", "tokamax_mosaic_tpu"): "tokamax asks for the chip that is attached",
}

UNSUPPORTED = {
    # XLA has no such product on CPUs, and these ask for no other.
    ("attention", "xla", "float16"): "F16_F16_F32",
    ("attention", "tokamax_chunked", "float16"): "F16_F16_F32",
}


def cases_of(name, shape, dtype, direction, names):
    family = registry.get(name)
    sizes, settings = registry.parse_shape(family, shape)
    found = registry.cases_of(
        family,
        sizes=sizes,
        settings=settings,
        dtype=dtype,
        direction=direction,
        implementations=names.split(),
    )
    return [case for case in found if dtype in case.implementation.dtypes]


def every_case():
    found = []
    for name, shape, names in ASKED:
        family = registry.get(name)
        for dtype in family.dtypes:
            for direction in family.directions:
                found += cases_of(name, shape, dtype, direction, names)
    for name, shape, dtype, names in BESIDE:
        found += cases_of(name, shape, dtype, Direction.FORWARD, names)
    return found


def is_tried(case):
    """Whether a case is among those that always run."""
    last = case.family.directions[-1]
    if (case.dtype, case.direction) == ("bfloat16", last):
        return True
    beside = [(name, shape) for name, shape, _, _ in BESIDE]
    if (case.family.name, case.shape) in beside:
        return True
    forward = (case.dtype, case.direction) == ("float32", Direction.FORWARD)
    return forward and not case.implementation.interpreted


def cases():
    """What runs now."""
    return [case for case in every_case() if EVERYTHING or is_tried(case)]


@pytest.fixture(scope="module")
def measured():
    bench = measure(cases(), rounds=3, seconds=0, interpret=True)
    assert bench.platform == "cpu"
    return {row.case.text: row for row in bench.rows}


@pytest.mark.parametrize("text", [case.text for case in cases()])
def test_results_and_gradients_are_as_exact_as_the_dtype(text, measured):
    row = measured[text]
    if row.reason.startswith("it needs tokamax"):
        pytest.skip(row.reason)
    words = UNSUPPORTED.get((row.case.family.name, row.case.implementation.name, row.case.dtype))
    if words is not None:
        assert (row.outcome, words in row.reason) == (Outcome.UNSUPPORTED, True)
        pytest.skip(row.reason)
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


def test_every_implementation_is_tried_in_every_dtype_and_direction():
    tried = {
        (case.family.name, case.implementation.name, case.dtype, case.direction)
        for case in every_case()
    }
    for name in registry.names():
        family = registry.get(name)
        for one in family.implementations:
            if (name, one.name) in NOT_HERE:
                assert not one.interpreted
                continue
            for dtype in one.dtypes:
                for direction in family.directions:
                    assert (name, one.name, dtype, direction) in tried
            assert any((case.family.name, case.implementation) == (name, one) for case in cases())


def test_only_what_was_not_interpreted_is_timed(measured):
    for row in measured.values():
        assert (row.times is not None) == (row.outcome is Outcome.MEASURED)
        assert bool(row.hlo) == (row.outcome is Outcome.MEASURED)
        if row.times is not None:
            assert len(row.times.seconds) == 3


def test_a_state_that_is_donated_has_its_memory_reused(measured):
    row = measured["adamw/float32/s8,d32/float32/forward"]
    assert row.memory["alias_size_in_bytes"] == 3 * 8 * 32 * 4
    assert row.times is not None
