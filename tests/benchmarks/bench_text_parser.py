"""The text parser against jaxlib's native one, on the same text, in one run.

Run: python tests/benchmarks/bench_text_parser.py [ROUNDS]

Rounds are interleaved, the first is thrown away, and medians are given with
the range. ``touched`` adds the time to split every instruction's attributes
and to decode its metadata, backend_config, window and replica groups.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxlib import _hlo

from hloscope.errors import HloscopeError
from hloscope.ir import Module, parse_text

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "hlo"
DUMPS = (
    "gpu_llama31_8b_1x8_unscheduled.hlo",
    "tpu_v6e8_llama3_8b_train_step.hlo",
    "gpu_maxtext_1n1g_before_optimizations.hlo",
    "cpu_resnet50_keras.hlo",
)
TARGETS = ("cpu", "h100", "v5e:2x2")


def texts() -> Iterator[tuple[str, str]]:
    for name in DUMPS:
        if (FIXTURES / name).exists():
            yield name.removesuffix(".hlo"), (FIXTURES / name).read_text()
    from hloscope.capture import CaptureRequest, Source, SourceKind, capture

    for target in TARGETS:
        try:
            artifact = capture(CaptureRequest(Source(SourceKind.ARCH, "unet"), target=target))
        except HloscopeError as error:
            print(f"unet on {target} is left out: {error.message}", file=sys.stderr)
        else:
            yield f"unet on {target}", artifact.hlo_text


def touch(module: Module) -> None:
    for instruction in module.instructions():
        _ = instruction.metadata, instruction.backend_config
        _ = instruction.window, instruction.replica_groups


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(times: list[float]) -> str:
    middle = statistics.median(times) * 1e3
    return f"{middle:7.1f} ({min(times) * 1e3:.1f}-{max(times) * 1e3:.1f})"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    titles = ("module", "MB", "native ms", "ours ms", "ratio", "touched")
    print("{:<40} {:>5} {:>22} {:>22} {:>6} {:>8}".format(*titles))
    for name, text in texts():
        native: list[float] = []
        ours: list[float] = []
        touched: list[float] = []
        for _ in range(rounds + 1):
            native.append(seconds(lambda text=text: _hlo.hlo_module_from_text(text)))
            ours.append(seconds(lambda text=text: parse_text(text)))
            touched.append(seconds(lambda text=text: touch(parse_text(text))))
        base = statistics.median(native[1:])
        ratio, whole = (statistics.median(times[1:]) / base for times in (ours, touched))
        print(
            f"{name:<40} {len(text) / 1e6:5.2f} {show(native[1:]):>22} {show(ours[1:]):>22}"
            f" {ratio:6.2f} {whole:8.2f}"
        )


if __name__ == "__main__":
    main()
