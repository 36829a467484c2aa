"""Traces of millions of kernels against xprof's kernel stats and JAX's ProfileData, in one run.

Run: python tests/benchmarks/bench_traces.py [FOLDER]

``hloscope`` is all that ``hloscope trace FILE`` does: reading, the union of busy time,
steps, categories, joined with the embedded module. ``xprof`` makes its kernel stats, and
``ProfileData`` gives every event's name, start and duration and adds the durations up.
Each runs in a process of its own, one after the other in every round; the first round is
thrown away, so that the file is in memory. Starting Python and importing is not counted;
``cpu`` is the processor's time, of all threads, which a busy machine lengthens less. The
peak of memory is the process's own. All of them must find the same time of kernels.

The second table reads folders of one, two, four and eight hosts of a million kernels each,
on one core and on all: what is in memory at a time must not grow with the hosts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from built_trace import Built

SIZES = {1_000_000: 5, 5_000_000: 3}
HOSTS = (1, 2, 4, 8)
LIMIT = 300  # seconds of one process


def hloscope(path: Path) -> Callable[[], float]:
    """Read and sum up; gives the time of all kernels, in seconds."""
    from hloscope.traces.reading import read_recording
    from hloscope.traces.summary import summarize
    from hloscope.traces.windows import WindowChoice

    def work() -> float:
        (device,) = summarize(read_recording(path), WindowChoice("all")).devices
        assert len(device.steps.rows) > 1
        assert device.joined == device.time
        return device.time / 1e12

    return work


def xprof(path: Path) -> Callable[[], float]:
    """What xprof's table of kernels is made of."""
    from xprof.convert import raw_to_tool_data

    # It keeps what it made beside the file, and would only read that again.
    for kept in path.parent.glob("*.op_stats*"):
        kept.unlink()

    def work() -> float:
        content, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "kernel_stats", {})
        table = json.loads(content)
        column = [each["id"] for each in table["cols"]].index("total_duration_us")
        return sum(row["c"][column]["v"] for row in table["rows"]) / 1e6

    return work


def profile_data(path: Path) -> Callable[[], float]:
    """Every event of every line, as JAX's own reader gives it."""
    from jax.profiler import ProfileData

    def work() -> float:
        total = 0.0
        for plane in ProfileData.from_file(str(path)).planes:
            device = plane.name.startswith("/device:")
            for line in plane.lines:
                for event in line.events:
                    _ = event.name, event.start_ns
                    total += event.duration_ns if device else 0
        return total / 1e9

    return work


def folder(path: Path) -> Callable[[], float]:
    """All hosts of a folder."""
    from hloscope.traces.reading import read_trace

    def work() -> float:
        return sum(device.time for device in read_trace(path).devices) / 1e12

    return work


CONTENDERS = {"hloscope": hloscope, "xprof": xprof, "ProfileData": profile_data, "folder": folder}


def measure(name: str, path: Path) -> None:
    """Do the work of one contender and print what it took."""
    work = CONTENDERS[name](path)
    start, before = time.perf_counter(), time.process_time()
    found = work()
    taken, cpu = time.perf_counter() - start, time.process_time() - before
    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    peaks = [resource.getrusage(who).ru_maxrss * 1024 / 1e9 for who in whose]
    print(json.dumps({"seconds": taken, "cpu": cpu, "peaks": peaks, "found": found}))


def run(name: str, path: Path, cores: set[int] | None = None) -> dict[str, object] | None:
    """A contender in a process of its own; ``None`` where it took too long or failed."""
    command = [sys.executable, __file__, "--one", name, str(path)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=LIMIT,
            check=True,
            preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
        )
    except subprocess.TimeoutExpired:
        print(f"{name} is stopped after {LIMIT} s", flush=True)
        return None
    except subprocess.CalledProcessError as error:
        print(f"{name} failed: {error.stderr.decode()[-300:]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def build(path: Path, kernels: int) -> Built:
    """Write a trace in another process: what is started counts this one's memory as its own."""
    from built_trace import Built

    command = [sys.executable, __file__, "--build", str(path), str(kernels)]
    said = subprocess.run(command, capture_output=True, check=True).stdout
    return Built(path, **json.loads(said))


def compare(built: Built, rounds: int, names: list[str]) -> None:
    size = built.path.stat().st_size / 1e6
    print(f"\n{built.kernels:,} kernels, {built.steps:,} steps, {size:.0f} MB, {rounds} rounds")
    titles = ("", "median s", "range", "cpu s", "peak GB", "kernels s")
    print("{:<12} {:>9} {:>15} {:>7} {:>9} {:>12}".format(*titles))
    taken: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for _ in range(rounds + 1):
        for name in list(taken):
            found = run(name, built.path)
            if found is None:
                del taken[name]
            else:
                # Some count whole nanoseconds.
                off = abs(found["found"] - built.time / 1e12)
                assert off <= built.kernels * 1e-9, (name, off)
                taken[name].append(found)
    for name, every in taken.items():
        seconds = [each["seconds"] for each in every[1:]]
        peak = max(each["peaks"][0] for each in every[1:])
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        middle = statistics.median(seconds)
        cpu = statistics.median(each["cpu"] for each in every[1:])
        print(
            f"{name:<12} {middle:>9.2f} {spread:>15} {cpu:>7.2f} {peak:>9.2f}"
            f" {every[0]['found']:>12.3f}",
            flush=True,
        )


def compare_hosts(built: Built, place: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    print(f"\nhosts of {built.kernels:,} kernels each, medians of 3")
    titles = ("hosts", "cores", "median s", "peak GB", "of a worker", "all at most")
    print("{:>5} {:>6} {:>9} {:>9} {:>12} {:>12}".format(*titles))
    for number in HOSTS:
        hosts = place / f"{number}_hosts"
        hosts.mkdir()
        for host in range(number):
            os.link(built.path, hosts / f"host{host}.xplane.pb")
        for allowed in ({0}, None):
            every = [each for _ in range(3) if (each := run("folder", hosts, allowed))]
            if not every:
                continue
            mine, worker = (max(each["peaks"][n] for each in every) for n in (0, 1))
            middle = statistics.median(each["seconds"] for each in every)
            used = 1 if allowed else cores
            workers = min(used, number) if worker else 0
            print(
                f"{number:>5} {used:>6} {middle:>9.2f} {mine:>9.2f} {worker:>12.2f}"
                f" {mine + workers * worker:>12.2f}",
                flush=True,
            )


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        measure(sys.argv[2], Path(sys.argv[3]))
        return
    if len(sys.argv) == 4 and sys.argv[1] == "--build":
        from built_trace import write_trace

        built = write_trace(Path(sys.argv[2]), int(sys.argv[3]))
        print(json.dumps({name: getattr(built, name) for name in ("kernels", "steps", "time")}))
        return
    names = ["hloscope", "xprof", "ProfileData"]
    if importlib.util.find_spec("xprof") is None:
        print("xprof is not installed and is left out: pip install 'hloscope[bench]'")
        names.remove("xprof")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
        for kernels, rounds in SIZES.items():
            where = Path(place) / str(kernels)
            where.mkdir()
            built = build(where / "built.xplane.pb", kernels)
            compare(built, rounds, names)
            if kernels == min(SIZES):
                compare_hosts(built, Path(place))


if __name__ == "__main__":
    main()
