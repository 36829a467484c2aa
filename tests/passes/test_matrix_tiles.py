import pytest

from hloscope.chips import CHIPS
from hloscope.passes.convolution_sizes import ConvolutionSizes
from hloscope.passes.matrix_tiles import tile_of
from hloscope.passes.product_sizes import ProductSizes, Sizes


@pytest.mark.parametrize(
    ("chip", "dtype", "tile"),
    [
        ("v5e", "bf16", (16, 128, 128)),
        ("v5e", "f32", (8, 128, 128)),
        ("v5p", "s8", (32, 128, 128)),
        ("v6e", "bf16", (16, 256, 256)),
        ("h100", "bf16", (16, 8, 16)),
        ("h100", "f8e4m3fn", (16, 8, 32)),
        ("a100", "f32", (16, 8, 8)),
    ],
)
def test_a_tile_goes_by_chip_and_type(chip, dtype, tile):
    found = tile_of(CHIPS[chip], (dtype, dtype))
    assert (found.streamed, found.held, found.summed) == tile
    assert found.source


def test_there_is_none_for_a_cpu_or_an_unknown_type():
    assert tile_of(CHIPS["cpu"], ("f32", "f32")) is None
    assert tile_of(CHIPS["v5e"], ("f64", "f64")) is None
    assert tile_of(CHIPS["h100"], ()) is None


def test_the_side_that_fills_whole_tiles_is_the_one_that_is_held():
    tile = tile_of(CHIPS["v5e"], ("bf16", "bf16"))
    assert tile.padded(Sizes((), (512,), (64,), (128,))) == (512, 64, 128)
    assert tile.padded(Sizes((), (64,), (512,), (128,))) == (64, 512, 128)
    assert tile.padded(Sizes((8,), (10,), (130,), (64,))) == (16, 256, 128)


DOT = """
HloModule m
ENTRY e {
  a = bf16[4,16,32] parameter(0)
  b = bf16[4,32,8,2] parameter(1)
  ROOT d = bf16[4,16,8,2] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""
# As TPUs write the same: batch and a free dimension are spatial ones.
CONVOLUTION = """
HloModule m
ENTRY e {
  a = bf16[4,16,32] parameter(0)
  b = bf16[4,32,8] parameter(1)
  ROOT d = bf16[4,16,8] convolution(a, b), window={size=4 stride=3 lhs_dilate=4},
    dim_labels=0bf_0io->0bf
}
"""


def test_the_sizes_of_a_dot_are_its_dimensions_by_their_part(session_of):
    (sizes,) = session_of(DOT).get(ProductSizes).by_product.values()
    assert sizes == Sizes((4,), (16,), (8, 2), (32,))


def test_a_product_written_as_a_convolution_has_the_same_sizes(session_of):
    (sizes,) = session_of(CONVOLUTION).get(ProductSizes).by_product.values()
    assert sizes == Sizes((4,), (16,), (8,), (32,))


def convolution(labels, window, result, kernel, *, more=""):
    return f"""
HloModule m
ENTRY e {{
  x = bf16[8,16,16,100]{{3,0,2,1}} parameter(0)
  w = bf16[{kernel}]{{3,2,1,0}} parameter(1)
  ROOT c = bf16[{result}]{{3,0,2,1}} convolution(x, w), window={{{window}}},
    dim_labels={labels}, metadata={{op_name="jit(f)/conv_general_dilated"}}{more}
}}
"""


def sizes_of(session_of, text):
    return list(session_of(text).get(ConvolutionSizes).by_product.values())


def test_a_convolution_is_a_product_for_each_tap(session_of):
    text = convolution("b01f_01io->b01f", "size=3x3 pad=1_1x1_1", "8,16,16,64", "3,3,100,64")
    (sizes,) = sizes_of(session_of, text)
    assert (sizes.rows, sizes.columns) == ((8, 16, 16), (64,))
    assert (sizes.summed, sizes.taps) == ((100,), 9)
    assert session_of(text).get(ProductSizes).rows == ()
    # With the batch along the lanes taps and channels are one.
    turned = text.replace("100]{3,0,2,1}", "100]{0,3,2,1}")
    (sizes,) = sizes_of(session_of, turned)
    assert (sizes.summed, sizes.taps) == ((3, 3, 100), 1)


def test_the_gradient_of_a_filter_sums_over_examples_and_positions(session_of):
    text = convolution("f01b_i01o->01bf", "size=16x16 pad=1_1x1_1", "3,3,100,64", "8,16,16,64")
    (sizes,) = sizes_of(session_of, text)
    assert (sizes.rows, sizes.columns) == ((100, 3, 3), (64,))
    assert (sizes.summed, sizes.taps) == ((16, 16, 8), 1)


def test_a_window_of_one_is_a_convolution_where_the_program_says_so(session_of):
    text = convolution("b01f_01io->b01f", "size=1x1", "8,16,16,64", "1,1,100,64")
    assert len(sizes_of(session_of, text)) == 1
    assert sizes_of(session_of, CONVOLUTION) == []


def test_grouped_convolutions_are_left_out(session_of):
    text = convolution(
        *("b01f_01io->b01f", "size=3x3 pad=1_1x1_1", "8,16,16,100", "3,3,1,100"),
        more=", feature_group_count=100",
    )
    assert sizes_of(session_of, text) == []


CUDNN = """
HloModule m
ENTRY e {{
  a = bf16[{first}]{{3,2,1,0}} parameter(0)
  b = bf16[{second}]{{3,2,1,0}} parameter(1)
  ROOT c = (bf16[{result}]{{3,2,1,0}}, u8[0]{{0}}) custom-call(a, b),
    window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_o01i->b01f, custom_call_target="{target}"
}}
"""


@pytest.mark.parametrize(
    ("target", "shapes", "sizes"),
    [
        ("Forward", "xwy", ((8, 16, 16), (64,), (3, 3, 100))),
        ("BackwardInput", "ywx", ((8, 16, 16), (100,), (3, 3, 64))),
        ("BackwardFilter", "xyw", ((3, 3, 100), (64,), (8, 16, 16))),
    ],
)
def test_cudnns_calls_are_the_products_of_their_direction(session_of, target, shapes, sizes):
    known = {"x": "8,16,16,100", "w": "64,3,3,100", "y": "8,16,16,64"}
    first, second, result = (known[shape] for shape in shapes)
    text = CUDNN.format(first=first, second=second, result=result, target=f"__cudnn$conv{target}")
    (found,) = sizes_of(session_of, text)
    assert (found.rows, found.columns, found.summed) == sizes
