"""LiteralProto to a numpy array in logical order, types that numpy lacks widened.

The reading of the narrow floating-point types follows the OCP 8-bit and MX
specifications and, for the ``fnuz`` kinds, Graphcore's and AMD's: sign,
exponent, mantissa, and per type a bias and a set of special values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from hloscope.errors import InputError
from hloscope.ir.literal import Literal, numpy_dtype
from hloscope.ir.shape import Shape

if TYPE_CHECKING:
    import numpy as np

__all__ = ["read_literal"]


def read_literal(message: Any, shape: Shape, *, name: str, file: str) -> Literal:
    """The value of a constant.

    Args:
        message: Its LiteralProto; one without elements counts as elided.
        shape: The instruction's shape. The elements lie in the order of the
            literal's own layout, which may differ from it.
        name: The instruction's name, for messages.
        file: What it was read from, for messages.

    Raises:
        InputError: The number of elements is not the shape's.
    """
    try:
        if shape.is_tuple:
            return Literal(shape, text=_tuple_text(message, shape))
        array = _array(message, shape)
    except ValueError as error:
        raise InputError(
            f"the value of constant %{name} is damaged: {error}",
            place=file,
            hint="Dump the module again, or fetch the whole file.",
        ) from None
    return Literal(shape, array=array)


def _array(message: Any, shape: Shape) -> np.ndarray[Any, Any] | None:
    import numpy as np

    if not shape.is_array:
        return None
    flat = _elements(message, shape.dtype, shape.num_elements)
    if flat is None:
        if shape.num_elements:
            return None
        return np.zeros(shape.dimensions, numpy_dtype(shape.dtype))
    if flat.size != shape.num_elements:
        raise ValueError(f"{flat.size} elements for {shape}")
    order = tuple(message.shape.layout.minor_to_major)
    if sorted(order) != list(range(shape.rank)):
        order = tuple(reversed(range(shape.rank)))
    major_to_minor = order[::-1]
    physical = flat.reshape([shape.dimensions[d] for d in major_to_minor])
    logical = np.ascontiguousarray(physical.transpose(np.argsort(major_to_minor)))
    return logical.reshape(shape.dimensions)  # the line above gives a scalar one dimension


_REPEATED = {
    "s32": "int32",
    "s64": "int64",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float32",
    "f64": "float64",
}
_RAW = {"u8": "u1", "s8": "i1", "u16": "<u2", "s16": "<i2", "f16": "<f2"}
_PACKED = {"s1": 1, "u1": 1, "s2": 2, "u2": 2, "s4": 4, "u4": 4}


def _elements(message: Any, dtype: str, count: int) -> np.ndarray[Any, Any] | None:
    """Elements in stored order, or ``None`` where the message holds none."""
    import numpy as np

    stored = message.preds if dtype == "pred" else getattr(message, f"{dtype}s")
    if len(stored) == 0:
        return None
    if dtype == "pred":
        return np.array(stored, dtype=bool)
    if dtype in _REPEATED:
        return np.array(stored, dtype=_REPEATED[dtype])
    if dtype in ("c64", "c128"):
        parts = np.array(stored, dtype=f"float{int(dtype[1:]) // 2}")
        return parts.view(f"complex{dtype[1:]}")
    if dtype in _RAW:
        return np.frombuffer(stored, dtype=_RAW[dtype])
    if dtype in _PACKED:
        return _unpack(np.frombuffer(stored, np.uint8), _PACKED[dtype], count, dtype[0] == "s")
    if dtype == "bf16":
        return (np.frombuffer(stored, "<u2").astype(np.uint32) << 16).view(np.float32)
    codes = np.frombuffer(stored, np.uint8)
    kind = _NARROW[dtype]
    if kind.bits == 4:
        codes = _unpack(codes, 4, count, signed=False)
    table = _decoding_table(dtype)
    values: np.ndarray[Any, Any] = table[codes & (len(table) - 1)]
    return values


def _unpack(
    stored: np.ndarray[Any, Any], bits: int, count: int, signed: bool
) -> np.ndarray[Any, Any]:
    """Integers of ``bits`` bits: a byte each, or packed with the first in the lowest bits.

    Which of the two a file holds depends on the XLA that wrote it; the number
    of bytes tells.
    """
    import numpy as np

    per_byte = 8 // bits
    if stored.size == count:
        codes = stored & (2**bits - 1)
    elif stored.size == -(-count // per_byte):
        shifts = np.arange(per_byte, dtype=np.uint8) * bits
        codes = ((stored[:, None] >> shifts) & (2**bits - 1)).reshape(-1)[:count]
    else:
        raise ValueError(f"{stored.size} bytes for {count} elements of {bits} bits")
    if not signed:
        unsigned: np.ndarray[Any, Any] = codes.astype(np.uint8)
        return unsigned
    values: np.ndarray[Any, Any] = codes.astype(np.int8)
    values[values >= 2 ** (bits - 1)] -= 2**bits
    return values


@dataclass(frozen=True, slots=True)
class _Narrow:
    """A floating-point type of at most eight bits.

    ``special`` is ``ieee`` (the highest exponent holds inf and nan), ``fn``
    (all ones is nan, no inf), ``fnuz`` (the code of minus zero is nan), or
    ``finite``.
    """

    exponent: int
    mantissa: int
    bias: int
    special: str

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


_NARROW = {
    "f8e5m2": _Narrow(5, 2, 15, "ieee"),
    "f8e4m3": _Narrow(4, 3, 7, "ieee"),
    "f8e3m4": _Narrow(3, 4, 3, "ieee"),
    "f8e4m3fn": _Narrow(4, 3, 7, "fn"),
    "f8e4m3b11fnuz": _Narrow(4, 3, 11, "fnuz"),
    "f8e4m3fnuz": _Narrow(4, 3, 8, "fnuz"),
    "f8e5m2fnuz": _Narrow(5, 2, 16, "fnuz"),
    "f8e8m0fnu": _Narrow(8, 0, 127, "scale"),
    "f6e2m3fn": _Narrow(2, 3, 1, "finite"),
    "f6e3m2fn": _Narrow(3, 2, 3, "finite"),
    "f4e2m1fn": _Narrow(2, 1, 1, "finite"),
}


@cache
def _decoding_table(dtype: str) -> np.ndarray[Any, Any]:
    """The float32 value of every code of a narrow type."""
    import numpy as np

    kind = _NARROW[dtype]
    if kind.special == "scale":  # a power of two and nothing else; all ones is nan
        values = [2.0 ** (code - kind.bias) for code in range(255)] + [float("nan")]
    else:
        half = 1 << (kind.bits - 1)
        positive = [_magnitude(code, kind) for code in range(half)]
        values = positive + [-value for value in positive]
        if kind.special == "fnuz":
            values[half] = float("nan")
    return np.array(values, dtype=np.float32)


def _magnitude(code: int, kind: _Narrow) -> float:
    exponent, mantissa = code >> kind.mantissa, code & ((1 << kind.mantissa) - 1)
    highest = (1 << kind.exponent) - 1
    if kind.special == "ieee" and exponent == highest:
        return float("nan") if mantissa else float("inf")
    if kind.special == "fn" and exponent == highest and mantissa == (1 << kind.mantissa) - 1:
        return float("nan")
    fraction = mantissa / (1 << kind.mantissa)
    if exponent == 0:
        return float(fraction * 2.0 ** (1 - kind.bias))
    return float((1 + fraction) * 2.0 ** (exponent - kind.bias))


def _tuple_text(message: Any, shape: Shape) -> str:
    """A tuple's value as HLO text; the elements of an elided member read ``{...}``."""
    if not shape.is_tuple:
        array = _array(message, shape)
        return "{...}" if array is None else _array_text(array, shape)
    if len(message.tuple_literals) != len(shape.elements):
        return "{...}"
    members = zip(message.tuple_literals, shape.elements, strict=True)
    return f"({', '.join(_tuple_text(member, element) for member, element in members)})"


def _array_text(array: np.ndarray[Any, Any], shape: Shape) -> str:
    def text(values: Any) -> str:
        if isinstance(values, list):
            return "{" + ", ".join(text(value) for value in values) + "}"
        if isinstance(values, complex):
            return f"({values.real!r}, {values.imag!r})"
        return str(values).lower() if isinstance(values, bool) else repr(values)

    if prod(shape.dimensions) == 0:
        return "{}"
    return text(array.tolist())
