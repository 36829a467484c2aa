"""Which of a chip's peaks a product is held against."""

import pytest

from hloscope.chips import CHIPS, Chip, ChipKind
from hloscope.ir import parse_text
from hloscope.passes.flops.counts import Count, Kind
from hloscope.passes.peaks import peak_of

GPU = Chip(
    "toy", "any", ChipKind.GPU, "toy", {"bf16": 8e12, "tf32": 4e12, "f32": 1e12, "s8": 16e12}
)
PLAIN = Chip("plain", "any", ChipKind.GPU, "plain", {"f16": 8e12, "f32": 1e12})
TPU = Chip("tpu", "any", ChipKind.TPU, "tpu", {"bf16": 6e12, "s8": 12e12})


def dot(attributes="", dtypes=("f32", "f32"), kind=Kind.MATMUL):
    module = parse_text(
        "HloModule m\n\nENTRY e {\n  a = f32[2,3] parameter(0)\n  b = f32[3,4] parameter(1)\n"
        "  ROOT d = f32[2,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        f"{attributes}\n}}\n"
    )
    return module.entry.root, Count(kind, 48, dtypes=dtypes)


HIGHEST = ", operand_precision={highest,highest}"


@pytest.mark.parametrize(
    ("chip", "attributes", "dtypes", "rate", "unit"),
    [
        (GPU, "", ("bf16", "bf16"), 8e12, "bf16"),
        (GPU, "", ("f32", "f32"), 4e12, "tf32"),
        (GPU, ", operand_precision={high,high}", ("f32", "f32"), 4e12, "tf32"),
        (GPU, HIGHEST, ("f32", "f32"), 1e12, "f32"),
        (GPU, HIGHEST, ("bf16", "bf16"), 8e12, "bf16"),
        (GPU, ", algorithm=dot_f32_f32_f32", ("f32", "f32"), 1e12, "f32"),
        (GPU, ", algorithm=dot_bf16_bf16_f32_x3", ("f32", "f32"), 8e12 / 3, "bf16 x3"),
        (GPU, ", algorithm=dot_tf32_tf32_f32_x3", ("f32", "f32"), 4e12 / 3, "tf32 x3"),
        (GPU, "", ("bf16", "f32"), 4e12, "tf32"),
        (GPU, "", ("u8", "s8"), 16e12, "s8"),
        (GPU, "", ("c64", "c64"), 4e12, "tf32"),
        (PLAIN, "", ("f32", "f32"), 1e12, "f32"),
        (TPU, "", ("f32", "f32"), 6e12, "bf16"),
        (TPU, ", operand_precision={high,high}", ("f32", "f32"), 2e12, "bf16 x3"),
        (TPU, HIGHEST, ("f32", "f32"), 1e12, "bf16 x6"),
        (TPU, HIGHEST, ("bf16", "bf16"), 6e12, "bf16"),
        (TPU, "", ("f8e5m2", "bf16"), 6e12, "bf16"),
    ],
)
def test_products_go_at_the_rate_that_xla_multiplies_them_at(chip, attributes, dtypes, rate, unit):
    peak = peak_of(*dot(attributes, dtypes), chip)
    assert peak.rate == pytest.approx(rate)
    assert peak.unit == unit


@pytest.mark.parametrize(
    ("chip", "dtypes"),
    [(GPU, ("f8e4m3fn", "f8e4m3fn")), (GPU, ("bf16", "f64")), (TPU, ("s4", "s4")), (GPU, ())],
)
def test_a_type_without_a_published_peak_has_none(chip, dtypes):
    assert peak_of(*dot(dtypes=dtypes), chip) is None


def test_a_kernel_of_several_types_goes_at_the_fastest():
    assert peak_of(*dot(dtypes=("f32", "bf16"), kind=Kind.KERNEL), GPU).rate == 8e12


def test_a_library_calls_precision_is_read_from_its_configuration():
    module = parse_text(
        "HloModule m\n\nENTRY e {\n  a = f32[2,3] parameter(0)\n  b = f32[3,4] parameter(1)\n"
        '  ROOT d = f32[2,4] custom-call(a, b), custom_call_target="__cublas$gemm", '
        'backend_config={"gemm_backend_config":{"precision_config":'
        '{"operand_precision":["HIGHEST","HIGHEST"],"algorithm":"ALG_UNSET"}}}\n}\n'
    )
    count = Count(Kind.MATMUL, 48, dtypes=("f32", "f32"))
    assert peak_of(module.entry.root, count, GPU).unit == "f32"


def test_a_tpus_clock_gives_its_peak_with_the_units_that_it_has():
    # Multiply-adds a cycle: 4 arrays of 128x128 (v5e), 8 (v5p and v4).
    for name, arrays in (("v5e", 4), ("v5p", 8), ("v4", 8)):
        chip = CHIPS[name]
        assert chip.clock_hz * arrays * 128 * 128 * 2 == pytest.approx(
            chip.peaks["bf16"], rel=0.005
        )
