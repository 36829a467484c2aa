"""What a kernel is, what can be asked of it, and one such request. Imports no JAX."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType

from hloscope.chips import Chip, ChipKind

__all__ = [
    "DTYPES",
    "Case",
    "Direction",
    "Family",
    "Implementation",
    "Reason",
    "Setting",
    "Size",
    "allow",
    "divisor_for",
    "needs_ampere",
    "needs_hopper",
]

DTYPES = ("bfloat16", "float16", "float32")
"""What operands may be rounded to; the default first."""


class Direction(StrEnum):
    """What is run."""

    FORWARD = "forward"
    BACKWARD = "backward"  # the forward pass and then its gradients, in one program


@dataclass(frozen=True, slots=True)
class Size:
    """One dimension of a family's shapes.

    Attributes:
        letter: How ``--shape`` spells it.
        name: What it counts.
        default: Where none is given.
        like: Letter of the size whose value it has where none is given, instead.
    """

    letter: str
    name: str
    default: int = 0
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A number beside the sizes that changes what is computed; 0 where it is off.

    Attributes:
        name: As in ``--set NAME=VALUE``.
        help: One line on what it does.
        whole: Whether it is a whole number.
        default: Where none is given.
        most: The largest that it may be; ``None`` for no limit.
        least: The smallest that it may be.
    """

    name: str
    help: str
    whole: bool = True
    default: float = 0
    most: float | None = None
    least: float = 0


Reason = Callable[["Case", Chip | None], str | None]
"""Says why an implementation cannot take a case on a chip, or gives ``None``."""


def allow(case: Case, chip: Chip | None) -> str | None:  # noqa: ARG001  (a Reason)
    """The reason of an implementation that takes everything: none."""
    return None


def _allow_sizes(sizes: Mapping[str, int]) -> str | None:  # noqa: ARG001
    return None


def divisor_for(length: int, most: int, least: int = 1, *, powers: bool = False) -> int:
    """The largest divisor of a length that a kernel takes; 0 where there is none.

    Args:
        length: What is to be split.
        most: The largest that is wanted.
        least: What the divisor is a multiple of.
        powers: Whether it must be a power of two.
    """
    small = [n for n in range(1, math.isqrt(length) + 1) if length % n == 0]
    divisors = {*small, *(length // n for n in small)}
    return max(
        (n for n in divisors if n <= most and n % least == 0 and not (powers and n & (n - 1))),
        default=0,
    )


def needs_ampere(chip: Chip | None, what: str = "Triton in XLA") -> str | None:
    """Why a GPU is too old for what Ampere brought; ``None`` for others and other chips."""
    return _too_old(chip, (8, 0), what)


def needs_hopper(chip: Chip | None, what: str = "Mosaic for GPUs") -> str | None:
    """Why a GPU is too old for what Hopper brought; ``None`` for others and other chips."""
    return _too_old(chip, (9, 0), what)


def _too_old(chip: Chip | None, least: tuple[int, int], what: str) -> str | None:
    if chip is None or chip.gpu is None or chip.gpu.compute_capability >= least:
        return None
    return f"{what} needs compute capability {least[0]}.{least[1]}"


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to compute a family's results.

    Attributes:
        name: As in a case's text.
        help: One line on what it is.
        kinds: The compilers that take it.
        interpreted: Whether it is a Pallas kernel, which other compilers can only
            run interpreted: that gives its numbers and says nothing of its time.
        refuses: What it does not take.
        dtypes: Operands that it takes.
        package: One that hloscope does not depend on, and that it needs.
    """

    name: str
    help: str
    kinds: frozenset[ChipKind] = frozenset(ChipKind)
    interpreted: bool = False
    refuses: Reason = allow
    dtypes: tuple[str, ...] = DTYPES
    package: str = ""

    def unsupported(self, case: Case, chip: Chip | None, kind: ChipKind) -> str | None:
        """Why it cannot be compiled for a kind of chip; ``None`` if it can.

        Args:
            case: What is asked.
            chip: The chip, where it is one of the table's.
            kind: Its compiler.
        """
        if kind not in self.kinds:
            return f"it is written for {self.written_for}"
        return self.refused(case, chip)

    @property
    def written_for(self) -> str:
        """The chips that it is written for, in words."""
        return " and ".join(_TITLES[kind] for kind in ChipKind if kind in self.kinds)

    @property
    def is_missing(self) -> bool:
        """Whether it needs a package that is not installed."""
        return bool(self.package) and importlib.util.find_spec(self.package) is None

    def refused(self, case: Case, chip: Chip | None) -> str | None:
        """Why it does not take a case, whatever compiles it; ``None`` if it does."""
        if self.is_missing:
            return f"it needs {self.package}: pip install {self.package}"
        if case.dtype not in self.dtypes:
            return f"it takes {' and '.join(self.dtypes)} only"
        return self.refuses(case, chip)


_TITLES = {ChipKind.CPU: "CPUs", ChipKind.GPU: "GPUs", ChipKind.TPU: "TPUs"}


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels that compute the same.

    Attributes:
        name: As in ``hloscope kernels NAME``; also the name of its modules.
        title: One line on what is computed.
        sizes: Dimensions, in the order in which a shape lists them.
        settings: What ``--set`` takes.
        implementations: The plainest first.
        outputs: Names of the results; the first has the gradients.
        directions: What can be run.
        dtypes: What operands can be rounded to.
        refuses: Why no implementation can take some sizes, given by their letters;
            ``None`` for sizes that there are.
    """

    name: str
    title: str
    sizes: tuple[Size, ...]
    settings: tuple[Setting, ...]
    implementations: tuple[Implementation, ...]
    outputs: tuple[str, ...]
    directions: tuple[Direction, ...] = tuple(Direction)
    dtypes: tuple[str, ...] = DTYPES
    refuses: Callable[[Mapping[str, int]], str | None] = _allow_sizes

    def implementation(self, name: str) -> Implementation:
        """The implementation of that name, which exists."""
        return next(one for one in self.implementations if one.name == name)

    def oracle(self) -> ModuleType:
        """The module of its operands, results and gradients in float64."""
        return importlib.import_module(f"hloscope.kernels.oracles.{self.name}")

    def programs(self) -> ModuleType:
        """The module of its implementations; imports JAX."""
        return importlib.import_module(f"hloscope.kernels.{self.name}")


@dataclass(frozen=True)
class Case:
    """One implementation on one shape.

    Attributes:
        family: What is computed.
        implementation: How.
        sizes: Every dimension of the family by its letter.
        settings: Every setting of the family by its name.
        dtype: What the operands are rounded to.
        direction: Forward alone, or with the gradients.
    """

    family: Family
    implementation: Implementation
    sizes: Mapping[str, int]
    settings: Mapping[str, float]
    dtype: str
    direction: Direction

    def __getitem__(self, letter: str) -> int:
        """A dimension by its letter."""
        return self.sizes[letter]

    def whole(self, name: str) -> int:
        """A setting that is a whole number."""
        return int(self.settings[name])

    @property
    def shape(self) -> str:
        """Sizes, and the settings that are not the defaults, as ``--shape`` and ``--set`` do."""
        parts = [
            f"{size.letter}{self[size.letter]}"
            for size in self.family.sizes
            if size.like is None or self[size.letter] != self[size.like]
        ]
        defaults = {setting.name: setting.default for setting in self.family.settings}
        for name, value in self.settings.items():
            if value != defaults[name]:
                parts.append(f"{name}={value:g}")
        return ",".join(parts)

    @property
    def group(self) -> tuple[str, str, str]:
        """What cases share that have the same operands: family, shape and dtype."""
        return self.family.name, self.shape, self.dtype

    @property
    def text(self) -> str:
        """Everything that tells it from other cases; ``registry.parse_case`` reads it."""
        parts: Sequence[str] = (
            self.family.name,
            self.implementation.name,
            self.shape,
            self.dtype,
            self.direction.value,
        )
        return "/".join(parts)
