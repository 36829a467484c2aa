"""Constants: their values where the module keeps them, and what kind of data they are."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hloscope.ir.dtypes import is_floating, is_integer
from hloscope.ir.shape import Shape

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Literal", "LiteralFacts", "classify"]

Scalar = int | float | bool | complex


@dataclass(frozen=True, slots=True)
class LiteralFacts:
    """What a constant holds, without its elements.

    Attributes:
        kind: ``zeros``, ``splat``, ``iota`` (counts up by one along one
            dimension), ``data``, or ``unknown`` when the elements are elided.
        value: The one value of zeros and splats.
        digest: Hash of dtype, dimensions and elements, equal for equal
            constants; empty when unknown.
    """

    kind: str
    value: Scalar | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Literal:
    """The value of a ``constant`` instruction.

    Attributes:
        shape: Its shape.
        text: The elements as HLO text, or ``None`` when they came as an array.
        array: The elements with numpy's dtype of the same width, or ``None``.
            Types that numpy lacks (bf16, fp8, sub-byte) come widened to
            float32 or int8, so values are right and widths are the shape's.
    """

    shape: Shape
    text: str | None = None
    array: Any = None

    @property
    def elided(self) -> bool:
        """Whether the module was printed without the elements (``{...}``)."""
        return self.array is None and (self.text is None or "..." in self.text)

    @property
    def scalar(self) -> Scalar | None:
        """The value when there is exactly one element and it is known."""
        if not self.shape.is_array or any(n != 1 for n in self.shape.dimensions) or self.elided:
            return None
        if self.array is not None:
            return _python_scalar(self.array.reshape(-1)[0].item())
        return _scalar(self.text or "", self.shape.dtype)

    def values(self) -> np.ndarray[Any, Any] | None:
        """The elements as an array of the shape's dimensions; ``None`` if elided or a tuple."""
        if self.array is not None:
            array: np.ndarray[Any, Any] = self.array
            return array
        if self.elided or not self.shape.is_array or self.text is None:
            return None
        return _array_from_text(self.text, self.shape)

    def facts(self) -> LiteralFacts:
        """What kind of data it is."""
        values = self.values()
        if values is None:
            return LiteralFacts("unknown")
        return classify(values, self.shape.dtype)


def classify(values: np.ndarray[Any, Any], dtype: str) -> LiteralFacts:
    """Tell zeros, splats and iotas from real data.

    Args:
        values: Elements in logical order.
        dtype: HLO element type; enters the digest.
    """
    import numpy as np

    flat = np.ascontiguousarray(values)
    head = f"{dtype}{list(values.shape)}".encode()
    digest = hashlib.sha256(head + flat.tobytes()).hexdigest()[:32]
    if flat.size == 0:
        return LiteralFacts("splat", None, digest)
    first = flat.reshape(-1)[0]
    bits = flat.reshape(-1).view(np.uint8).reshape(flat.size, -1)
    if (bits == bits[0]).all():
        kind = "splat" if bits[0].any() else "zeros"
        return LiteralFacts(kind, _python_scalar(first.item()), digest)
    if flat.dtype.kind in "iuf" and _is_iota(flat):
        return LiteralFacts("iota", None, digest)
    return LiteralFacts("data", None, digest)


def _is_iota(values: np.ndarray[Any, Any]) -> bool:
    import numpy as np

    for axis, size in enumerate(values.shape):
        if size < 2:
            continue
        ramp = np.arange(size, dtype=values.dtype).reshape(
            [-1 if k == axis else 1 for k in range(values.ndim)]
        )
        if (values == ramp).all():
            return True
    return False


def _python_scalar(value: Any) -> Scalar:
    return value if isinstance(value, (bool, int, float, complex)) else float(value)


_NUMBER = re.compile(
    r"\(\s*([^,()]+),\s*([^,()]+)\)|(-?nan(?:\(0x[0-9a-f]+\))?|-?inf|true|false|[-+]?[\d.][\w.+\-]*)",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def _numbers(text: str, dtype: str) -> list[Scalar]:
    return [
        complex(_real(real), _real(imaginary)) if real else _one(bare, dtype)
        for real, imaginary, bare in _NUMBER.findall(_COMMENT.sub("", text))
    ]


def _one(text: str, dtype: str) -> Scalar:
    if text in ("true", "false"):
        return text == "true"
    if dtype == "pred":
        return bool(int(text))
    return int(text) if is_integer(dtype) else _real(text)


def _real(text: str) -> float:
    text = text.strip()
    return float(text.split("(")[0]) if "nan" in text else float(text)


def _scalar(text: str, dtype: str) -> Scalar | None:
    try:
        numbers = _numbers(text, dtype)
    except ValueError:
        return None
    return numbers[0] if len(numbers) == 1 else None


def _array_from_text(text: str, shape: Shape) -> np.ndarray[Any, Any] | None:
    """The elements, or ``None`` where the text holds too few, or some that the type cannot."""
    import numpy as np

    try:
        numbers = _numbers(text, shape.dtype)
        if len(numbers) != shape.num_elements:
            return None
        return np.array(numbers, dtype=numpy_dtype(shape.dtype)).reshape(shape.dimensions)
    except (ValueError, OverflowError):
        return None


def numpy_dtype(dtype: str) -> str:
    """Numpy's name for the type in which elements of an HLO type are held."""
    if dtype == "pred":
        return "bool"
    if dtype in ("s1", "s2", "s4"):
        return "int8"
    if dtype in ("u1", "u2", "u4"):
        return "uint8"
    if dtype in ("c64", "c128"):
        return f"complex{dtype[1:]}"
    if is_integer(dtype):
        return ("int" if dtype[0] == "s" else "uint") + dtype[1:]
    if dtype in ("f16", "f64"):
        return f"float{dtype[1:]}"
    if is_floating(dtype):
        return "float32"
    raise ValueError(f"{dtype} holds no numbers")
