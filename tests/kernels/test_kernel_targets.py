"""Every implementation compiles for a target, or the target's row says why it does not."""

import importlib.util
import os

import pytest

import hloscope
from hloscope.errors import UsageError
from hloscope.kernels import registry
from hloscope.pipeline.findings import Basis

EVERYTHING = bool(os.environ.get("HLOSCOPE_TEST_EVERYTHING"))

SMALL = {
    "attention": "b1,s256,h2,d64,causal=1",
    "grouped_matmul": "s256,g2,d128,f128",
    "rms_norm": "s128,d256",
    "swiglu": "s128,d128,f128",
    "vocabulary_head": "s128,d128,v256",
    "adamw": "s128,d128",
    "ssd_scan": "b1,s64,h2,d32,n16,chunk=32",
    "short_convolution": "b2,s64,d128",
}

REASONS = (
    "it is written for",
    "it needs tokamax",
    "cuDNN's library is missing",
    "it takes",
)


def rows_of(report, name="routes"):
    (table,) = [table for table in report.tables if table.name == name]
    return {row[0]: row for row in table.rows}


def test_every_family_has_a_small_shape():
    assert set(SMALL) == set(registry.names())


@pytest.mark.skipif(not EVERYTHING, reason="compiles for minutes: HLOSCOPE_TEST_EVERYTHING")
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
@pytest.mark.parametrize("name", registry.names())
def test_an_implementation_compiles_or_the_reason_is_given(name, target, backward, need_target):
    family = registry.get(name)
    if backward and len(family.directions) == 1:
        pytest.skip(f"{name} has no gradients")
    need_target(target)
    report = hloscope.compare_kernels(name, shape=SMALL[name], target=target, backward=backward)
    rows = rows_of(report)
    assert set(rows) == {one.name for one in family.implementations}
    for row in rows.values():
        *numbers, route = row[1:]
        if route.startswith("unsupported: "):
            assert route.removeprefix("unsupported: ").startswith(REASONS), row
            assert all(number.value is None for number in numbers)
        else:
            assert not route.startswith("failed"), row
            assert numbers[-1].value >= 1


@pytest.mark.parametrize(
    ("target", "implementation", "word", "other"),
    [
        ("h100", "pallas_gpu", "Pallas kernel (Triton)", "pallas_tpu"),
        ("v5e", "pallas_tpu", "Pallas kernel (Mosaic)", "pallas_gpu"),
    ],
)
def test_a_scan_is_one_kernel_for_each_direction(target, implementation, word, other, need_target):
    need_target(target)
    report = hloscope.compare_kernels(
        "ssd_scan",
        shape=SMALL["ssd_scan"],
        implementations=(implementation, other),
        target=target,
        backward=True,
    )
    rows = rows_of(report)
    assert f"{word} x2" in rows[implementation][5]
    assert rows[other][5].startswith("unsupported: it is written for")
    products = rows[implementation][1]
    if target == "v5e":
        # Of each of 2 heads' 64 tokens: 4 products with the tokens of a chunk over the state's
        # width, 3 over the head's, and 7 of the state.
        inside, state = 32 * (4 * 16 + 3 * 32), 7 * 16 * 32
        assert products.value == 2 * 64 * 2 * (inside + state)
        assert products.basis is Basis.MODELLED
    else:
        # JAX keeps no estimate of a Triton kernel.
        assert products.value is None


def test_an_update_has_its_state_in_memory_once():
    report = hloscope.compare_kernels(
        "adamw", shape="s128,d128", implementations=("float32", "nearest"), target="cpu"
    )
    rows = rows_of(report)
    values = 128 * 128
    # A float32 parameter, its gradient in bfloat16, and the moments.
    for name, moment in (("float32", 4), ("nearest", 2)):
        temporaries, peak = rows[name][2], rows[name][3]
        held = values * (4 + 2 + 2 * moment)
        assert held <= peak.value - temporaries.value <= held + 64


def test_a_kernel_whose_package_is_missing_says_how_to_get_it(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "hloscope.kernels.case.importlib.util.find_spec",
        lambda name: None if name == "tokamax" else real(name),
    )
    report = hloscope.compare_kernels(
        "attention", implementations=("tokamax_chunked", "tokamax_mosaic_tpu"), target="cpu"
    )
    rows = rows_of(report)
    said = "unsupported: it needs tokamax: pip install tokamax"
    assert rows["tokamax_chunked"][5] == said
    # What another target would be needed for comes first.
    assert rows["tokamax_mosaic_tpu"][5] == "unsupported: it is written for TPUs"
    with pytest.raises(UsageError, match="attention/tokamax_chunked needs tokamax") as refused:
        registry.build("attention/tokamax_chunked/b1,s128")
    assert refused.value.hint == "pip install tokamax"
