"""Facts on constants, held against numpy's reading of the same values."""

from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np
import pytest

from hloscope.capture.literals import literal_facts


def compiled_module(text):
    from jaxlib import _hlo

    return _hlo.hlo_module_from_text(text)


def printed(values):
    """A constant as HLO text spells it in full."""
    if values.ndim == 0:
        return str(values)
    return "{ " + ", ".join(printed(row) for row in values) + " }"


def facts_of(dtype, values):
    shape = f"{dtype}[{','.join(map(str, values.shape))}]"
    layout = "{" + ",".join(str(d) for d in reversed(range(values.ndim))) + "}"
    full = (
        f"HloModule m\n\nENTRY %e () -> {shape} {{\n"
        f"  ROOT %c.1 = {shape}{layout} constant({printed(values)})\n}}\n"
    )
    elided = full.replace(printed(values), "{...}")
    serialized = compiled_module(full).as_serialized_hlo_module_proto()
    facts, note = literal_facts(serialized, elided)
    assert note is None
    (fact,) = facts
    return fact


CASES = [
    ("f32", np.float32, np.linspace(-1, 1, 24)),
    ("f64", np.float64, np.linspace(-1, 1, 24)),
    ("f16", np.float16, np.linspace(-1, 1, 24)),
    ("bf16", ml_dtypes.bfloat16, np.arange(24) * 0.5),
    ("f8e4m3fn", ml_dtypes.float8_e4m3fn, np.arange(24) * 0.5),
    ("f8e5m2", ml_dtypes.float8_e5m2, 2.0 ** (np.arange(24) % 7)),
    ("s8", np.int8, np.arange(24) - 12),
    ("s16", np.int16, np.arange(24) * 1000 - 12000),
    ("s32", np.int32, np.arange(24) * 100_000_000 - 1_200_000_000),
    ("s64", np.int64, np.arange(24) * 10**17 - 10**18),
    ("u8", np.uint8, np.arange(24) * 10),
    ("u16", np.uint16, np.arange(24) * 2500),
    ("u32", np.uint32, np.arange(24) * 170_000_000),
    ("u64", np.uint64, np.arange(24) * 7 * 10**17),
]


@pytest.mark.parametrize(("dtype", "kind", "values"), CASES, ids=[case[0] for case in CASES])
def test_data_of_every_dtype_is_read_as_numpy_holds_it(dtype, kind, values):
    array = values.reshape(4, 6).astype(kind)
    fact = facts_of(dtype, array)
    assert (fact.name, fact.dtype, fact.dimensions, fact.kind) == ("c.1", dtype, (4, 6), "data")
    assert fact.digest == hashlib.sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("values", "kind", "value"),
    [
        (np.zeros((5, 7), np.float32), "zeros", "0.0"),
        (np.full((5, 7), 2.5, np.float32), "splat", "2.5"),
        (np.full((5, 7), np.nan, np.float32), "splat", "nan"),
        (np.broadcast_to(np.arange(7, dtype=np.float32), (5, 7)), "iota", None),
        (np.broadcast_to(np.arange(5, dtype=np.float32)[:, None], (5, 7)), "iota", None),
        (np.arange(35, dtype=np.float32).reshape(5, 7), "data", None),
        # Minus zero is not zero, bit for bit.
        (np.full((5, 7), -0.0, np.float32), "splat", "-0.0"),
        (np.where(np.arange(35) == 34, 1.0, 0.0).reshape(5, 7).astype(np.float32), "data", None),
    ],
    ids=["zeros", "splat", "nan", "iota 1", "iota 0", "not an iota", "minus zero", "one differs"],
)
def test_splats_and_iotas_are_told_from_data(values, kind, value):
    fact = facts_of("f32", values)
    assert (fact.kind, fact.value) == (kind, value)


def test_equal_contents_have_equal_digests():
    values = np.linspace(0, 1, 24).astype(np.float32)
    assert facts_of("f32", values).digest == facts_of("f32", values.copy()).digest
    assert facts_of("f32", values).digest != facts_of("f32", values[::-1].copy()).digest


def test_a_constant_that_cannot_be_read_is_listed():
    text = "  %c.7 = s4[64]{0:E(4)} constant({...})\n"
    facts, note = literal_facts(b"", text)
    assert facts == ()
    assert "1 of 1" in note
    assert "c.7" in note
