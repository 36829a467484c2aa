"""Kernels of a trace that are as short as what it takes to launch them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hloscope.chips import ChipKind
from hloscope.errors import HloscopeError, Unavailable
from hloscope.ir import Instruction, read_proto
from hloscope.pipeline.analyses import analysis
from hloscope.pipeline.rules import Limits
from hloscope.traces.kernel_instructions import Link
from hloscope.traces.kernel_names import category_of_name
from hloscope.traces.operations import KernelTally, OperationTally
from hloscope.traces.summary import DeviceSummary, HostSummary, Trace

__all__ = ["ShortKernels", "ShortLine", "find_short_kernels"]

_PS = 1e-12


@dataclass
class ShortLine:
    """The short kernels of one source line, or of one instruction that has none.

    Attributes:
        instruction: One of those that run them; ``None`` where its program is not embedded.
        name: The instruction's, else the kernel's.
        number: Short kernels that ran.
        time: Seconds of these.
        gaps: Seconds in which the device was idle right behind one of them.
    """

    instruction: Instruction | None
    name: str
    number: int = 0
    time: float = 0.0
    gaps: float = 0.0

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.time + self.gaps


@dataclass(frozen=True)
class ShortKernels:
    """Short kernels on all GPUs of a trace, in their windows.

    Attributes:
        kernels: Kernels that ran, copies not among them.
        short: Short ones.
        time: Seconds of these.
        gaps: Seconds in which a device was idle right behind one of them, of gaps that are
            no longer than launching explains.
        window: Length of the windows in seconds, added up.
        devices: GPUs that ran kernels.
        lines: By source line, those that take most first.
    """

    kernels: int
    short: int
    time: float
    gaps: float
    window: float
    devices: int
    lines: tuple[ShortLine, ...] = field(default=())

    @property
    def share(self) -> float:
        """Of the windows, what short kernels and the gaps behind them take."""
        return (self.time + self.gaps) / self.window if self.window else 0.0


@analysis
def find_short_kernels(trace: Trace, limits: Limits) -> ShortKernels:
    """Find the kernels that on average run no longer than ``short_kernel_seconds``.

    Raises:
        Unavailable: The trace is of no GPU: on others nothing is launched one by one.
    """
    ran = [(h, d) for h in trace.hosts for d in h.devices if d.kind is ChipKind.GPU]
    if not ran:
        raise Unavailable("the trace is of no GPU: nothing says what a launch takes elsewhere")
    known = _Instructions()
    lines: dict[object, ShortLine] = {}
    kernels = short = 0
    for host, device in ran:
        for row, kernel in _launched(device):
            kernels += kernel.number
            if kernel.time * _PS > limits.short_kernel_seconds * kernel.number:
                continue
            short += kernel.number
            instruction = known.of(host, row)
            name = row.name or kernel.label
            place = _place(instruction) or (row.program, name)
            line = lines.setdefault(place, ShortLine(instruction, name))
            line.number += kernel.number
            line.time += kernel.time * _PS
            line.gaps += kernel.gaps * _PS
    return ShortKernels(
        kernels=kernels,
        short=short,
        time=sum(line.time for line in lines.values()),
        gaps=sum(line.gaps for line in lines.values()),
        window=sum(device.windows.chosen.length for _, device in ran) * _PS,
        devices=sum(any(True for _ in _launched(device)) for _, device in ran),
        lines=tuple(sorted(lines.values(), key=lambda line: -line.seconds)),
    )


def _launched(device: DeviceSummary) -> Iterator[tuple[OperationTally, KernelTally]]:
    """Kernels, without copies and without whole CUDA graphs."""
    for row in device.operations.rows:
        if row.link is not Link.GRAPH:
            for kernel in row.kernels:
                if not category_of_name(kernel.label).is_copy:
                    yield row, kernel


def _place(instruction: Instruction | None) -> object:
    location = instruction.location if instruction is not None else None
    return (location.file, location.line) if location is not None else None


class _Instructions:
    """The instructions of the programs that the trace keeps, each read once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Mapping[str, Instruction]] = {}

    def of(self, host: HostSummary, row: OperationTally) -> Instruction | None:
        content = host.programs.get(row.program)
        if content is None or not row.name:
            return None
        if content not in self._known:
            self._known[content] = _by_name(content)
        return self._known[content].get(row.name)


def _by_name(content: bytes) -> Mapping[str, Instruction]:
    try:
        return read_proto(content).by_name
    except HloscopeError:
        return {}  # a note of its host says so
