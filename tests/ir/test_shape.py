"""Shapes: what their text means, how many bytes they take, and what is refused."""

import pytest

from hloscope.errors import Unavailable
from hloscope.ir.dtypes import BITS
from hloscope.ir.shape import UNBOUNDED, ShapeError, parse_shape


@pytest.mark.parametrize(
    "text",
    [
        "f32[]",
        "f32[8,128]{1,0}",
        "bf16[4,1024,8,64]{3,1,2,0}",
        "f32[1000,3]{1,0:T(8,128)}",
        "bf16[16,128]{1,0:T(8,128)(2,1)S(1)}",
        "s32[]{:T(128)}",
        "u32[]{:S(2)}",
        "s4[16,32]{1,0:E(4)}",
        "f32[<=8,16]{1,0}",
        "f32[?,16]",
        "u8[0]{0}",
        "token[]",
        "opaque[]",
        "()",
        "b(f32[4]{0})",
        "((f32[2]{0}, s32[]), u32[])",
        "(f32[], f32[], f32[], f32[], f32[], /*index=5*/s32[])",
    ],
)
def test_a_shape_prints_as_it_was_written(text):
    assert str(parse_shape(text)) == text


@pytest.mark.parametrize("dtype", sorted(BITS))
def test_every_element_type_has_a_width(dtype):
    assert parse_shape(f"{dtype}[3]").bytes == 3 * max(1, BITS[dtype] // 8)


def test_packed_sub_byte_elements_take_their_bits_and_unpacked_ones_a_byte():
    assert parse_shape("s4[16,32]{1,0:E(4)}").bytes == 16 * 32 // 2
    assert parse_shape("s4[16,32]{1,0}").bytes == 16 * 32
    assert parse_shape("s4[3]{0:E(4)}").bytes == 2


def test_tuples_sum_their_members_and_tokens_count_nothing():
    assert parse_shape("((f32[2]{0}, token[]), bf16[3]{0})").bytes == 2 * 4 + 3 * 2


def test_tile_padding_rounds_the_most_minor_dimensions_up():
    # 1000 rows are 125 whole tiles of 8; 3 columns become one tile of 128.
    assert parse_shape("f32[1000,3]{1,0:T(8,128)}").padded_bytes == 1000 * 128 * 4
    # Layout {0,1}: the rows are minor now, 1000 -> 1024 and 3 -> 8.
    assert parse_shape("f32[1000,3]{0,1:T(8,128)}").padded_bytes == 1024 * 8 * 4
    assert parse_shape("bf16[5]{0:T(1024)}").padded_bytes == 1024 * 2
    assert parse_shape("f32[1000,3]{1,0}").padded_bytes == 1000 * 3 * 4


def test_a_tile_wider_than_the_rank_pads_a_missing_dimension():
    assert parse_shape("f32[100]{0:T(8,128)}").padded_bytes == 8 * 128 * 4


def test_layout_qualifiers_are_read():
    layout = parse_shape("bf16[16,128]{1,0:T(8,128)(2,1)S(5)}").layout
    assert layout is not None
    assert layout.tiles == ((8, 128), (2, 1))
    assert layout.memory_space == 5
    assert layout.minor_to_major == (1, 0)


def test_a_layout_may_hold_a_physical_shape_with_braces():
    shape = parse_shape("f32[2,3]{1,0:P(f32[6]{0})}")
    assert shape.layout is not None
    assert shape.layout.qualifiers == "P(f32[6]{0})"


def test_bounded_and_unbounded_dimensions():
    bounded = parse_shape("f32[<=8,16]")
    assert bounded.dimensions == (8, 16)
    assert bounded.dynamic == (True, False)
    assert bounded.num_elements == 128
    unbounded = parse_shape("f32[?,16]")
    assert unbounded.dimensions == (UNBOUNDED, 16)
    with pytest.raises(Unavailable, match="no upper bound"):
        _ = unbounded.num_elements


def test_equal_text_gives_equal_shapes_and_layouts_matter():
    assert parse_shape("f32[2,3]{1,0}") == parse_shape("f32[2,3]{1,0}")
    assert parse_shape("f32[2,3]{1,0}") != parse_shape("f32[2,3]{0,1}")
    assert parse_shape("f32[2,3]{1,0}").without_layout() == parse_shape("f32[2,3]")


def test_leaves_flatten_nested_tuples():
    leaves = parse_shape("((f32[2], s32[]), (u32[], token[]))").leaves()
    assert [str(leaf) for leaf in leaves] == ["f32[2]", "s32[]", "u32[]", "token[]"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a shape"),
        ("f33[2]", "unknown element type"),
        ("f32[2,x]", "is no dimension"),
        ("f32[2,3]{1}", "does not name each dimension"),
        ("f32[2,3]{1,1}", "does not name each dimension"),
        ("(f32[2], ", "expected a shape"),
        ("(f32[2] f32[2])", "expected ',' or"),
        ("f32[2] f32[3]", "after the end"),
        ("f32[2]{0:T(x)}", "expected numbers"),
        ("(" * 100 + "f32[]" + ")" * 100, "nested more than"),
        ("f32[" + "9" * 5000 + "]", "is no dimension"),
    ],
)
def test_what_is_no_shape_is_refused_with_a_reason(text, message):
    with pytest.raises(ShapeError, match=message):
        parse_shape(text)
