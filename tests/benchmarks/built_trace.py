"""Traces of any size, as a GPU's profiler writes them: built by numpy, not event by event.

One GPU of four streams runs steps of two hundred kernels; ten of them at a time are the
nodes of one CUDA graph, launched by the host inside of an annotated step. Every kernel
has seven stats and some 65 bytes, and its instruction is in the embedded module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxlib import _hlo
from numpy.typing import NDArray

__all__ = ["KERNELS_A_STEP", "STREAMS", "Built", "write_trace"]

STREAMS = 4
KERNELS_A_STEP = 200
KERNELS_A_LAUNCH = 10
PROGRAM = 7
BEGINNING_NS = 1_700_000_000_000_000_000

_STATS = (
    "hlo_op",
    "hlo_module",
    "program_id",
    "correlation_id",
    "kernel_details",
    "scope_range_id",
    "cuda_graph_id",
    "device_vendor",
    "step_num",
    "jit_step",
)
_IDS = {name: number for number, name in enumerate(_STATS, 1)}
_FIRST_OPERATION = 1000  # ids of the texts that hlo_op refers to
_FIRST_DETAILS = 2000
_CHUNK = 100_000

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Built:
    """What was written.

    Attributes:
        path: The file.
        kernels: Events on the streams.
        steps: Annotated ones.
        time: Durations of all kernels added up, in picoseconds.
    """

    path: Path
    kernels: int
    steps: int
    time: int


def write_trace(path: Path, kernels: int, seed: int = 1) -> Built:
    """Write a trace.

    Args:
        path: The file.
        kernels: A multiple of ``KERNELS_A_STEP``.
        seed: Of the durations.
    """
    steps = kernels // KERNELS_A_STEP
    each = KERNELS_A_STEP // STREAMS
    random = np.random.default_rng(seed)
    durations = random.integers(2_000_000, 90_000_000, (STREAMS, steps, each))
    gaps = random.integers(0, 3_000_000, (STREAMS, steps, each))
    after = np.cumsum(durations + gaps, axis=2)
    walls = after[:, :, -1].max(axis=0) + 20_000_000
    begins = np.cumsum(walls) - walls
    offsets = after - durations + begins[None, :, None]
    # Kernel k of a step runs on stream k % 4: its launch is the k // 10th of its step.
    places = np.arange(each)[None, :] * STREAMS + np.arange(STREAMS)[:, None]
    launches = KERNELS_A_STEP // KERNELS_A_LAUNCH
    lines = []
    for stream in range(STREAMS):
        kernel = np.tile(places[stream], steps)
        launch = np.repeat(np.arange(steps) * launches, each) + kernel // KERNELS_A_LAUNCH + 1
        stats = (
            (_IDS["hlo_op"], 7, kernel + _FIRST_OPERATION),
            (_IDS["hlo_module"], 7, np.full(len(kernel), _IDS["jit_step"])),
            (_IDS["program_id"], 3, np.full(len(kernel), PROGRAM)),
            (_IDS["correlation_id"], 3, launch),
            (_IDS["kernel_details"], 7, kernel % 50 + _FIRST_DETAILS),
            (_IDS["scope_range_id"], 4, kernel % 90 + 1),
            (_IDS["cuda_graph_id"], 3, kernel // KERNELS_A_LAUNCH + 1),
        )
        events = _events(kernel + 1, offsets[stream].ravel(), durations[stream].ravel(), stats)
        lines.append((f"Stream #{stream + 7}(Compute)", stream + 7, b"".join(events)))
    names = {k + 1: _kernel(k) for k in range(KERNELS_A_STEP)}
    texts = {number: name for name, number in _IDS.items()}
    texts |= {_FIRST_OPERATION + k: _operation(k) for k in range(KERNELS_A_STEP)}
    details = "regs:32 static_shared:0 dynamic_shared:0 grid:{},1,1 block:256,1,1 occ_pct:100"
    texts |= {_FIRST_DETAILS + n: details.format(n + 1) for n in range(50)}
    with path.open("wb") as file:
        vendor = _message(6, _number(1, _IDS["device_vendor"]) + _message(5, b"Nvidia"))
        file.write(_message(1, _plane("/device:GPU:0", lines, names, texts) + vendor))
        file.write(_message(1, _host(begins, launches, texts)))
        file.write(_message(1, _modules()))
        file.write(_message(4, b"built"))
    return Built(path, steps * KERNELS_A_STEP, steps, int(durations.sum()))


def _host(begins: Numbers, launches: int, texts: dict[int, str]) -> bytes:
    """The host's thread: steps, and in each the launches of its graphs."""
    within = np.arange(launches) * 10_000_000 + 5_000_000
    at = (begins[:, None] + within).ravel()
    launched = (_IDS["correlation_id"], 3, np.arange(1, len(at) + 1))
    known = np.full(len(at), 2), at, np.full(len(at), 4_000_000)
    steps = np.full(len(begins), 1), begins, np.full(len(begins), 250_000_000)
    numbered = (_IDS["step_num"], 4, np.arange(len(begins)))
    lines = [
        ("python", 1, b"".join(_events(*steps, (numbered,)))),
        ("tf_XLAExecute/12", 12, b"".join(_events(*known, (launched,)))),
    ]
    return _plane("/host:CPU", lines, {1: "train", 2: "cuGraphLaunch"}, texts)


def _modules() -> bytes:
    """The metadata plane with the module that the kernels are of."""
    proto = _hlo.hlo_module_from_text(_hlo_text()).as_serialized_hlo_module_proto()
    stat = _number(1, 1) + _message(6, _message(1, proto))
    name = f"jit_step({PROGRAM})".encode()
    entry = _number(1, PROGRAM) + _message(2, name) + _message(5, stat)
    body = _message(2, b"/host:metadata")
    body += _message(4, _number(1, PROGRAM) + _message(2, entry))
    return body + _message(
        5, _number(1, 1) + _message(2, _number(1, 1) + _message(2, b"Hlo Proto"))
    )


def _hlo_text() -> str:
    """A chain of dots, reductions across devices, transposes and sums."""
    lines = [
        "HloModule jit_step, is_scheduled=true",
        "%add { %a = f32[] parameter(0) %b = f32[] parameter(1) ROOT %c = f32[] add(%a, %b) }",
        "ENTRY %main (p: f32[64,64]) -> f32[64,64] {",
        "  %p = f32[64,64]{1,0} parameter(0)",
    ]
    before = "p"
    for k in range(KERNELS_A_STEP):
        opcode, rest = {
            0: ("dot", f"(%{before}, %p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"),
            3: ("all-reduce", f"(%{before}), replica_groups={{}}, to_apply=%add"),
            5: ("transpose", f"(%{before}), dimensions={{1,0}}"),
        }.get(k % 10, ("add", f"(%{before}, %p)"))
        said = f'metadata={{op_name="jit(step)/layer_{k // 20}/{opcode}"'
        said += f' source_file="model.py" source_line={k + 1}}}'
        root = "ROOT " if k == KERNELS_A_STEP - 1 else ""
        lines.append(f"  {root}%{_operation(k)} = f32[64,64]{{1,0}} {opcode}{rest}, {said}")
        before = _operation(k)
    return "\n".join([*lines, "}"])


def _operation(k: int) -> str:
    return f"op.{k + 1}"


def _kernel(k: int) -> str:
    if k % 10 == 0:
        return f"nvjet_hsh_128x{64 + k}_64x4_1x2_h_bz_NNT"
    return "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if k % 10 == 3 else f"loop_add_fusion_{k}"


def _plane(
    name: str, lines: Sequence[tuple[str, int, bytes]], names: dict[int, str], texts: dict[int, str]
) -> bytes:
    parts = [_message(2, name.encode())]
    for line, number, events in lines:
        head = _number(1, number) + _message(2, line.encode()) + _number(3, BEGINNING_NS)
        parts.append(_message(3, head + events))
    for field, entries in ((4, names), (5, texts)):
        for number, text in entries.items():
            value = _number(1, number) + _message(2, text.encode())
            parts.append(_message(field, _number(1, number) + _message(2, value)))
    return b"".join(parts)


def _events(
    metadata: Numbers,
    offsets: Numbers,
    durations: Numbers,
    stats: Sequence[tuple[int, int, Numbers]],
) -> Iterator[bytes]:
    """The events of a line, field 4 of it, in pieces.

    Args:
        metadata: The id of each event's name.
        offsets: In picoseconds from the line's timestamp.
        durations: In picoseconds.
        stats: Of each the id of its name, the field of its value and the values.
    """
    for first in range(0, len(metadata), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        cells = [
            *_field(1, metadata[chunk]),
            *_field(2, offsets[chunk]),
            *_field(3, durations[chunk]),
        ]
        for which, field, values in stats:
            content = [
                *_field(1, np.full(len(values[chunk]), which)),
                *_field(field, values[chunk]),
            ]
            cells += _headed(4, content)
        bytes_, kept = zip(*_headed(4, cells), strict=True)
        yield np.hstack(bytes_)[np.hstack(kept)].tobytes()


Cells = tuple[NDArray[np.uint8], NDArray[np.bool_]]
"""Some bytes of every event, and which of them count."""


def _field(number: int, values: Numbers) -> list[Cells]:
    tags = np.full((len(values), 1), number << 3, np.uint8)
    return [(tags, np.ones(tags.shape, np.bool_)), _varints(values)]


def _headed(number: int, content: list[Cells]) -> list[Cells]:
    """A message of some cells, with its tag and its length before it."""
    lengths = sum(np.count_nonzero(kept, axis=1) for _, kept in content)
    tags, size = _field(number, np.asarray(lengths, np.int64))
    tags[0][:] = number << 3 | 2
    return [tags, size, *content]


def _varints(values: Numbers) -> Cells:
    width = max(-(-int(values.max(initial=0)).bit_length() // 7), 1)
    groups = values[:, None] >> (7 * np.arange(width))
    # A byte counts where it, or one behind it, is not zero; the first always does.
    kept = groups > 0
    kept[:, 0] = True
    more = np.append(kept[:, 1:], np.zeros((len(values), 1), np.bool_), axis=1)
    return (groups & 0x7F | more << 7).astype(np.uint8), kept


def _varint(value: int) -> bytes:
    cells, kept = _varints(np.asarray([value], np.int64))
    return cells[kept].tobytes()


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content
