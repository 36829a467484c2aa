import pytest

from hloscope.chips import CHIPS
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
