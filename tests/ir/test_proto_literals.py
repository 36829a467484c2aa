"""Constants in protobufs: narrow types widened, packed types unpacked, layouts undone."""

import numpy as np
import pytest

from hloscope.errors import InputError
from hloscope.ir import parse_shape
from hloscope.ir.proto.literals import read_literal
from hloscope.ir.proto.schema import message_class

ml_dtypes = pytest.importorskip("ml_dtypes")


def literal(text, **fields):
    message = message_class("LiteralProto")(**fields)
    return read_literal(message, parse_shape(text), name="c", file="f.pb")


NARROW = {
    "f8e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3",
    "f8e3m4": "float8_e3m4",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f6e2m3fn": "float6_e2m3fn",
    "f6e3m2fn": "float6_e3m2fn",
    "f4e2m1fn": "float4_e2m1fn",
}


@pytest.mark.parametrize("dtype", NARROW)
def test_every_code_of_a_narrow_float_has_the_value_that_ml_dtypes_gives_it(dtype):
    kind = np.dtype(getattr(ml_dtypes, NARROW[dtype]))
    bits = int(dtype[1])
    codes = np.arange(2**bits, dtype=np.uint8)

    values = literal(f"{dtype}[{2**bits}]", **{f"{dtype}s": codes.tobytes()}).values()

    expected = codes.view(kind).astype(np.float32)
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, expected)
    numbers = ~np.isnan(expected)  # zeros keep their signs
    np.testing.assert_array_equal(np.signbit(values[numbers]), np.signbit(expected[numbers]))


def test_bfloat16_widens_exactly():
    stored = np.array([1.0, -2.5, np.inf, 1e-30], dtype=ml_dtypes.bfloat16)

    values = literal("bf16[4]", bf16s=stored.tobytes()).values()

    np.testing.assert_array_equal(values, stored.astype(np.float32))


@pytest.mark.parametrize("dtype", ["s4", "u4", "s2", "u2", "s1", "u1"])
def test_subbyte_integers_read_from_a_byte_each_and_from_packed_bytes(dtype):
    bits, signed = int(dtype[1]), dtype[0] == "s"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    numbers = [low + k % (high - low) for k in range(13)]
    codes = [n % 2**bits for n in numbers]
    per_byte = 8 // bits
    packed = bytes(
        sum(code << (bits * k) for k, code in enumerate(codes[start : start + per_byte]))
        for start in range(0, 13, per_byte)
    )

    for stored in (bytes(codes), packed):
        assert literal(f"{dtype}[13]", **{f"{dtype}s": stored}).values().tolist() == numbers


def test_elements_come_in_logical_order_whatever_the_literals_layout():
    shape = message_class("ShapeProto")(element_type=4, dimensions=[2, 3])
    shape.layout.minor_to_major[:] = [0, 1]

    values = literal("s32[2,3]{1,0}", shape=shape, s32s=[1, 4, 2, 5, 3, 6]).values()

    assert values.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_scalar_and_its_facts():
    read = literal("f32[]", f32s=[0.0])

    assert read.scalar == 0.0
    assert read.facts().kind == "zeros"


def test_a_literal_without_elements_counts_as_elided():
    read = literal("f32[1000]")

    assert read.elided
    assert read.values() is None
    assert read.facts().kind == "unknown"


def test_an_empty_array_is_not_elided():
    read = literal("f32[0,3]")

    assert not read.elided
    assert read.values().shape == (0, 3)


def test_a_tuple_keeps_the_values_of_its_members():
    one = message_class("LiteralProto")(s32s=[1, 2])
    two = message_class("LiteralProto")(preds=[True])

    assert literal("(s32[2], pred[])", tuple_literals=[one, two]).text == "({1, 2}, true)"


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ("f32[3]", {"f32s": [1.0, 2.0]}),
        ("bf16[2]", {"bf16s": b"abc"}),
        ("s4[5]", {"s4s": b"ab"}),
        ("c64[1]", {"c64s": [1.0, 2.0, 3.0]}),
        ("pred[2]", {"preds": [True]}),
    ],
)
def test_too_few_or_too_many_elements_are_refused(shape, fields):
    with pytest.raises(InputError, match=r"constant %c is damaged") as caught:
        literal(shape, **fields)
    assert caught.value.place == "f.pb"
