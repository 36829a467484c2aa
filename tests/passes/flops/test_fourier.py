import math

import pytest

from hloscope.ir import parse_text
from hloscope.passes.flops.counts import Kind
from hloscope.passes.flops.fourier import count_fft
from hloscope.pipeline.findings import Basis


def fft(operand: str, result: str, kind: str, lengths: str):
    return count_fft(
        parse_text(
            f"HloModule m\nENTRY e {{ x = {operand} parameter(0)\n"
            f"ROOT r = {result} fft(x), fft_type={kind}, fft_length={{{lengths}}} }}"
        ).entry.root
    )


@pytest.mark.parametrize(
    ("operand", "result", "kind", "lengths", "expected"),
    [
        ("c64[4,64]", "c64[4,64]", "FFT", "64", 4 * 5 * 64 * 6),
        ("c64[4,64]", "c64[4,64]", "IFFT", "64", 4 * 5 * 64 * 6),
        # The logarithm is that of all points, not a product of logarithms.
        ("c64[4,8,16]", "c64[4,8,16]", "FFT", "8,16", 4 * 5 * 128 * 7),
        # Real transforms do half, whichever side is the real one.
        ("f32[4,64]", "c64[4,33]", "RFFT", "64", 4 * 5 * 64 * 6 // 2),
        ("c64[4,33]", "f32[4,64]", "IRFFT", "64", 4 * 5 * 64 * 6 // 2),
    ],
)
def test_the_textbook_count(operand, result, kind, lengths, expected):
    count = fft(operand, result, kind, lengths)
    assert (count.kind, count.flops, count.basis) == (Kind.FFT, expected, Basis.MODELLED)
    assert "N log2 N" in count.model


def test_a_length_that_is_no_power_of_two_is_not_rounded_down():
    assert fft("c64[100]", "c64[100]", "FFT", "100").flops == round(500 * math.log2(100))


def test_xla_multiplies_the_logarithms(xla_flops):
    text = (
        "HloModule m\nENTRY e { x = c64[8,16] parameter(0)\n"
        "ROOT r = c64[8,16] fft(x), fft_type=FFT, fft_length={8,16} }\n"
    )
    assert xla_flops(text) == 2 * 4 * (3 * 4) * (8 * 16)
