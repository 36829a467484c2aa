"""Every static analysis against parsing the same text, in one run.

Run: python tests/benchmarks/bench_passes.py [ROUNDS]

Each analysis is timed on a fresh session that holds everything it needs
already, so the figure is its own. ``ledger`` is all that the FLOP ledger
stands on, from the call graph up; the bar is twice the time of parsing.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path

from hloscope.chips import CHIPS, Chip
from hloscope.errors import Unavailable
from hloscope.ir import parse_text
from hloscope.passes.aliasing import Aliasing
from hloscope.passes.collective_dtypes import CollectiveDtypes
from hloscope.passes.collectives import Collectives
from hloscope.passes.constants import Constants
from hloscope.passes.converts import Converts
from hloscope.passes.dtype_products import DtypeProducts
from hloscope.passes.flops.elementwise import ElementwiseLedger
from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.heap_block import HeapBlock
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_use import MemoryUse
from hloscope.passes.narrow_reductions import NarrowReductions
from hloscope.passes.parameter_casts import ParameterCasts
from hloscope.passes.promotions import Promotions
from hloscope.passes.quantization import Quantization
from hloscope.passes.residuals import Residuals
from hloscope.passes.roofline import Roofline
from hloscope.passes.round_trips import RoundTrips
from hloscope.passes.traffic import Traffic
from hloscope.passes.wide_types import WideTypes
from hloscope.passes.work import WorkLedger
from hloscope.pipeline.loading import load_passes
from hloscope.pipeline.session import Session
from hloscope.subjects import ModuleSubject

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "hlo"
DUMPS = {
    "gpu_llama31_8b_1x8_unscheduled": "h100",
    "tpu_v6e8_llama3_8b_train_step": "v6e",
}
ASKED = (
    ("ledger", (FlopLedger,)),
    ("elementwise", (ElementwiseLedger,)),
    ("aliasing", (Aliasing,)),
    ("constants", (Constants,)),
    ("collectives", (Collectives,)),
    ("traffic", (Traffic,)),
    ("roofline", (Roofline,)),
    (
        "dtypes",
        (
            *(DtypeProducts, Converts, RoundTrips, ParameterCasts, CollectiveDtypes),
            *(WideTypes, Promotions, NarrowReductions, Quantization),
        ),
    ),
    ("work", (WorkLedger,)),
    ("live ranges", (LiveRanges,)),  # the dumps that are not scheduled have none
    ("memory", (MemoryUse, Residuals)),
    ("heap block", (HeapBlock,)),
)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    load_passes()
    for name, chip in DUMPS.items():
        text = (FIXTURES / f"{name}.hlo").read_text()
        parse: list[float] = []
        taken: dict[str, list[float]] = {what: [] for what, _ in ASKED}
        for _ in range(rounds + 1):
            start = time.perf_counter()
            module = parse_text(text)
            parse.append(time.perf_counter() - start)
            session = Session(ModuleSubject(module, name), given={Chip: CHIPS[chip]})
            for what, types in ASKED:
                start = time.perf_counter()
                with suppress(Unavailable):
                    for wanted in types:
                        session.get(wanted)
                taken[what].append(time.perf_counter() - start)
        base = statistics.median(parse[1:])
        print(f"{name}: parse {base * 1e3:.1f} ms")
        for what, times in taken.items():
            middle = statistics.median(times[1:])
            spread = f"{min(times[1:]) * 1e3:.1f}-{max(times[1:]) * 1e3:.1f}"
            print(f"  {what:<12} {middle * 1e3:7.1f} ms ({spread})  {middle / base:5.2f}x")


if __name__ == "__main__":
    main()
