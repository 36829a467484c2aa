import pytest

from hloscope.chips import CHIPS
from hloscope.pipeline.findings import Severity, Unit

MLP = """
def f(x, up, down):
    return jnp.tanh(x @ up) @ down

def of(*sizes):
    return shape(*sizes, dtype="bfloat16")

step = Step(f, (of({tokens}, {width}), of({width}, {hidden}), of({hidden}, {width})))
"""
ATTENTION = """
def attend(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, implementation="xla")

q = shape(2, 512, 4, {depth}, dtype="bfloat16")
step = Step(attend, (q, q, q))
"""
HEAD = """
def f(x, w):
    return x @ w

step = Step(f, (shape(4096, 1024, dtype="bfloat16"), shape(1024, {words}, dtype="bfloat16")))
"""


def test_a_width_between_tiles_is_found_with_what_its_padding_takes(found_in):
    (finding,) = found_in("HS503", MLP.format(tokens=8192, width=1088, hidden=4096), "v5e")
    # Of the two products the first sums over 1088, in nine tiles of 128.
    assert finding.evidence[2].value == pytest.approx(1088 / 1152)
    lost = (1152 / 1088 - 1) / 2
    assert finding.evidence[1].value == pytest.approx(lost / (1 + lost), rel=0.01)
    assert finding.cost.unit is Unit.SECONDS
    assert finding.site.file == "train.py"
    assert any("summed size 1088 -> 1152" in note for note in finding.notes)
    assert "multiple of 128" in finding.fix


@pytest.mark.parametrize("target", ["v5e", "h100"])
def test_whole_tiles_are_left_alone(found_in, target):
    assert found_in("HS503", MLP.format(tokens=4096, width=1024, hidden=4096), target) == ()


def test_heads_of_half_a_tile_are_found(found_in):
    (finding,) = found_in("HS503", ATTENTION.format(depth=64), "v5e")
    assert finding.evidence[2].value == pytest.approx(1 / 2)
    assert any("summed size 64 -> 128" in note for note in finding.notes)
    assert finding.severity is Severity.ERROR


def test_heads_of_a_whole_tile_are_left_alone(found_in):
    assert found_in("HS503", ATTENTION.format(depth=128), "v5e") == ()


def test_a_product_that_waits_for_its_weights_loses_nothing(found_in):
    assert found_in("HS503", MLP.format(tokens=4, width=1088, hidden=4096), "v5e") == ()


def test_a_cpu_has_no_tiles(found_in):
    assert found_in("HS503", MLP.format(tokens=256, width=1088, hidden=130), "cpu") == ()


def test_an_odd_vocabulary_is_named_on_a_gpu(found_in):
    (finding,) = found_in("HS503", HEAD.format(words=50257), "h100")
    assert finding.severity is Severity.NOTE
    assert "rows are no multiple of 16 bytes" in finding.message
    assert "50257 a multiple of 8" in finding.fix


def test_an_even_vocabulary_is_left_alone(found_in):
    assert found_in("HS503", HEAD.format(words=50304), "h100") == ()


def test_a_product_with_a_vector_has_no_tiles_to_fill(found_in):
    code = """
    def f(x, v):
        return x @ v

    step = Step(f, (shape(64, 100), shape(100)))
    """
    assert found_in("HS503", code, "v5e") == ()


CONVOLUTION = """
def f(x, w):
    return jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

step = Step(f, (shape(8, 32, 32, {channels}, dtype="bfloat16"),
                shape(3, 3, {channels}, 256, dtype="bfloat16")))
"""


def test_channels_between_tiles_are_found(found_in):
    (finding,) = found_in("HS503", CONVOLUTION.format(channels=100), "v5e")
    # Each of nine taps sums over 100 channels, in a tile of 128.
    assert finding.evidence[2].value == pytest.approx(100 / 128)
    assert "a convolution does" in finding.message
    assert any("input channels 100 -> 128" in note for note in finding.notes)
    assert "input channels a multiple of 128" in finding.fix


def test_channels_that_are_not_aligned_are_named_on_a_gpu(found_in):
    (unaligned,) = found_in("HS503", CONVOLUTION.format(channels=100), "h100")
    assert "a convolution takes" in unaligned.message
    assert "100 channels a multiple of 8" in unaligned.fix


def test_channels_of_whole_tiles_are_left_alone(found_in):
    assert found_in("HS503", CONVOLUTION.format(channels=128), "h100") == ()


def test_an_image_is_to_be_folded_into_channels(findings_of):
    text = """
    HloModule m, is_scheduled=true
    ENTRY e {
      x = bf16[8,64,64,3]{0,3,2,1:T(4,128)(2,1)} parameter(0)
      w = bf16[3,3,3,256]{3,2,1,0:T(4,128)(2,1)} parameter(1)
      ROOT c = bf16[8,64,64,256]{3,0,2,1:T(8,128)(2,1)S(1)} convolution(x, w),
        window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
    }
    """
    (finding,) = findings_of("HS503", text, CHIPS["v5e"])
    assert any("taps times input channels 27 -> 128" in note for note in finding.notes)
    assert "Fold blocks of pixels into the 3 channels" in finding.fix
