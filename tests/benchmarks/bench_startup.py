"""How long the command line takes to answer. Run: python tests/benchmarks/bench_startup.py"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

COMMANDS = (("--help",), ("--version",), ("audit", "--help"), ("archs",))
ROUNDS = 15


def main() -> None:
    print(f"{'command':<16} {'median s':>9} {'range':>15}")
    times: dict[tuple[str, ...], list[float]] = {command: [] for command in COMMANDS}
    for _ in range(ROUNDS + 1):
        for command in COMMANDS:  # interleaved, so that a busy moment hits them all
            start = time.perf_counter()
            subprocess.run([sys.executable, "-m", "hloscope", *command], capture_output=True)
            times[command].append(time.perf_counter() - start)
    for command, taken in times.items():
        kept = taken[1:]
        spread = f"{min(kept):.3f}-{max(kept):.3f}"
        print(f"{' '.join(command):<16} {statistics.median(kept):9.3f} {spread:>15}")


if __name__ == "__main__":
    main()
