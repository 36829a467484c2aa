"""What the constants hold that the printed module elides.

The optimized module's text says ``constant({...})`` for anything longer than a
few elements. The worker still has the module, so it reads the literals from
its serialized proto, keeps facts on them and lets the bytes go. Field numbers
are XLA's (``xla/service/hlo.proto``, ``xla/xla_data.proto``).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import numpy.typing as npt

from hloscope.capture.artifact import LiteralFacts

__all__ = ["literal_facts"]

# Number of the type in PrimitiveType: HLO's name, numpy's type for the stored
# bytes, and the field of LiteralProto that holds them.
_TYPES: dict[int, tuple[str, npt.DTypeLike, int]] = {
    1: ("pred", np.uint8, 2),
    2: ("s8", np.int8, 15),
    3: ("s16", np.int16, 17),
    4: ("s32", np.int32, 4),
    5: ("s64", np.int64, 5),
    6: ("u8", np.uint8, 3),
    7: ("u16", np.uint16, 16),
    8: ("u32", np.uint32, 6),
    9: ("u64", np.uint64, 7),
    10: ("f16", np.float16, 11),
    11: ("f32", np.float32, 8),
    12: ("f64", np.float64, 9),
    15: ("c64", np.complex64, 12),
    16: ("bf16", ml_dtypes.bfloat16, 13),
    18: ("c128", np.complex128, 18),
    19: ("f8e5m2", ml_dtypes.float8_e5m2, 19),
    20: ("f8e4m3fn", ml_dtypes.float8_e4m3fn, 20),
    23: ("f8e4m3b11fnuz", ml_dtypes.float8_e4m3b11fnuz, 23),
    24: ("f8e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 24),
    25: ("f8e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 25),
    28: ("f8e4m3", ml_dtypes.float8_e4m3, 28),
    29: ("f8e3m4", ml_dtypes.float8_e3m4, 29),
    33: ("f8e8m0fnu", ml_dtypes.float8_e8m0fnu, 33),
}
# These are written as one varint an element; all others lie there as plain
# little-endian bytes.
_VARINT_TYPES = frozenset({4, 5, 8, 9})

_ELIDED = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .* constant\(\{\.\.\.\}\)", re.MULTILINE)


def literal_facts(serialized: bytes, text: str) -> tuple[tuple[LiteralFacts, ...], str | None]:
    """Facts on every constant that ``text`` elides.

    Args:
        serialized: The module as a serialized ``HloModuleProto``.
        text: The module as it is printed.

    Returns:
        The facts, in the module's order, and a note that says which constants
        could not be read, or ``None``.
    """
    elided = set(_ELIDED.findall(text))
    facts: list[LiteralFacts] = []
    unread: list[str] = []
    if elided:
        for name, literal in _constants(memoryview(serialized), elided):
            found = _facts(name, literal)
            if found is None:
                unread.append(name)
            else:
                facts.append(found)
        unread.extend(sorted(elided - {fact.name for fact in facts} - set(unread)))
    if not unread:
        return tuple(facts), None
    shown = ", ".join(unread[:5]) + (", ..." if len(unread) > 5 else "")
    return tuple(facts), f"{len(unread)} of {len(elided)} constants could not be read: {shown}"


def _facts(name: str, literal: memoryview) -> LiteralFacts | None:
    element_type = 0
    dimensions: tuple[int, ...] = ()
    for number, value in _fields(literal):
        if number == 1 and isinstance(value, memoryview):
            element_type, dimensions = _shape(value)
    known = _TYPES.get(element_type)
    if known is None:
        return None
    dtype, kind, holder = known
    count = math.prod(dimensions)
    values = _values(literal, holder, element_type, np.dtype(kind))
    if values is None or values.size != count:
        return None
    content, shown = _content(values.reshape(dimensions))
    return LiteralFacts(
        name=name,
        dtype=dtype,
        dimensions=dimensions,
        kind=content,
        value=shown,
        digest=hashlib.sha256(values.tobytes()).hexdigest(),
    )


def _content(values: npt.NDArray[np.generic]) -> tuple[str, str | None]:
    """Tell zeros, splat and iota from data. Compares bits, so that NaN equals itself."""
    width = values.dtype.itemsize
    rows = np.ascontiguousarray(values).view(np.uint8).reshape(-1, width)
    if rows.size == 0:
        return "data", None
    if (rows == rows[0]).all():
        value = str(values.reshape(-1)[0])
        return ("zeros" if not rows[0].any() else "splat"), value
    if values.dtype.kind in "iuf" or values.dtype == ml_dtypes.bfloat16:
        for axis, size in enumerate(values.shape):
            ramp = np.arange(size).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
            if size > 1 and bool((values == ramp.astype(values.dtype)).all()):
                return "iota", None
    return "data", None


def _values(
    literal: memoryview, wanted: int, element_type: int, dtype: np.dtype[np.generic]
) -> npt.NDArray[np.generic] | None:
    parts: list[npt.NDArray[np.generic]] = []
    for number, value in _fields(literal):
        if number != wanted or not isinstance(value, memoryview):
            continue
        if element_type in _VARINT_TYPES:
            parts.append(_varints(value).astype(dtype))
        elif len(value) % dtype.itemsize == 0:
            parts.append(np.frombuffer(value, dtype=dtype))
    if not parts:
        return np.empty(0, dtype)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _varints(data: memoryview) -> npt.NDArray[np.uint64]:
    """Decode packed varints, all at once.

    The last byte of each has its top bit clear; the seven low bits of a byte
    count 128 times as much as those of the byte before it.
    """
    raw = np.frombuffer(data, np.uint8)
    if raw.size == 0:
        return np.empty(0, np.uint64)
    ends = np.flatnonzero(raw < 128)
    starts = np.concatenate((np.zeros(1, ends.dtype), ends[:-1] + 1))
    owner = np.repeat(np.arange(ends.size), ends - starts + 1)
    low = (raw[: owner.size] & 127).astype(np.uint64)
    place = (np.arange(owner.size) - starts[owner]).astype(np.uint64) * np.uint64(7)
    return np.asarray(np.add.reduceat(low << place, starts), dtype=np.uint64)


def _constants(module: memoryview, wanted: set[str]) -> Iterator[tuple[str, memoryview]]:
    """The literals of the module's constants with these names."""
    for module_field, computation in _fields(module):
        if module_field != 3 or not isinstance(computation, memoryview):
            continue
        for computation_field, instruction in _fields(computation):
            if computation_field != 2 or not isinstance(instruction, memoryview):
                continue
            name = opcode = ""
            literal: memoryview | None = None
            for number, value in _fields(instruction):
                if not isinstance(value, memoryview):
                    continue
                if number == 1:
                    name = bytes(value).decode(errors="replace")
                elif number == 2:
                    opcode = bytes(value).decode(errors="replace")
                elif number == 8:
                    literal = value
            if opcode == "constant" and literal is not None and name in wanted:
                yield name, literal


def _shape(data: memoryview) -> tuple[int, tuple[int, ...]]:
    element_type = 0
    dimensions: list[int] = []
    for number, value in _fields(data):
        if number == 2 and isinstance(value, int):
            element_type = value
        elif number == 3:
            if isinstance(value, int):
                dimensions.append(value)
            else:
                dimensions.extend(int(d) for d in _varints(value))
    return element_type, tuple(dimensions)


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of one protobuf message: numbers as int, everything else as its bytes."""
    position = 0
    end = len(data)
    while position < end:
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire == 2:
            size, position = _varint(data, position)
            yield number, data[position : position + size]
            position += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, data[position : position + size]
            position += size
        else:
            raise ValueError(f"wire type {wire} in a serialized module")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
