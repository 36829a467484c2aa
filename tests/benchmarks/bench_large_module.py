"""Time and memory of reading modules of up to a million instructions.

Run: python tests/benchmarks/bench_large_module.py [INSTRUCTIONS ...]

Every size runs in a process of its own, so that the peak is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

from hloscope.ir import parse_text

SIZES = (125_000, 250_000, 500_000, 1_000_000)


def text_of(instructions: int) -> str:
    """A scheduled chain with two operands, a source line and a scope each."""
    lines = ["HloModule big, is_scheduled=true\n\nENTRY %main (p: f32[8,128]) -> f32[8,128] {"]
    lines.append("  %p = f32[8,128]{1,0} parameter(0)")
    previous = "p"
    for n in range(instructions - 1):
        lines.append(
            f"  %add.{n} = f32[8,128]{{1,0}} add(%{previous}, %p), "
            f'metadata={{op_name="jit(step)/layer_{n % 97}/add" stack_frame_id={n % 50}}}'
        )
        previous = f"add.{n}"
    return "\n".join(lines) + "\n}\n"


def measure(instructions: int) -> None:
    text = text_of(instructions)
    start = time.perf_counter()
    module = parse_text(text)
    parsed = time.perf_counter() - start
    start = time.perf_counter()
    for instruction in module.instructions():
        _ = instruction.attributes
    touched = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    each = parsed / instructions * 1e6
    print(
        f"{module.num_instructions:>12,} {len(text) / 1e6:>8.1f} {parsed:>9.2f} {each:>9.2f} "
        f"{touched:>11.2f} {peak:>9.2f}",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        measure(int(sys.argv[2]))
        return
    titles = ("instructions", "MB", "parse s", "us each", "attributes s", "peak GiB")
    print("{:>12} {:>8} {:>9} {:>9} {:>11} {:>9}".format(*titles), flush=True)
    for size in [int(n) for n in sys.argv[1:]] or SIZES:
        subprocess.run([sys.executable, __file__, "--one", str(size)], check=True)


if __name__ == "__main__":
    main()
