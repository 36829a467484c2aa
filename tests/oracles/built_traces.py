"""Recordings of programs that ran on a GPU or a TPU, kernel by kernel, with their modules."""

import functools

import pytest
from oracles.xspaces import PlaneWriter, space

from hloscope.traces.reading import read_trace

US = 1_000_000  # picoseconds

H100 = {
    "device_vendor": "Nvidia",
    "gpu_device_name": "NVIDIA H100 80GB HBM3",
    "clock_rate": 1_980_000,
    "core_count": 132,
}


@functools.cache
def serialized(text):
    """HLO text as the module that a profiler embeds; the same bytes each time."""
    native = pytest.importorskip("jaxlib._hlo", reason="XLA's own parser makes the module")
    return native.hlo_module_from_text(text).as_serialized_hlo_module_proto()


class BuiltTrace:
    """Kernels of one host, put one after the other on streams of its GPUs.

    Args:
        programs: HLO text by program id.
        card: What the plane says of the GPU.
    """

    def __init__(self, programs=None, card=H100):
        self.programs, self.card = programs or {}, card
        self.streams, self.planes, self.now = {}, {}, {}

    def kernel(self, label, begin_us, length_us, stream=7, gpu=0, **stats):
        """One kernel, at a time of the recording's."""
        plane = self.planes.setdefault(gpu, PlaneWriter(f"/device:GPU:{gpu}"))
        event = plane.event(
            label, round(begin_us * US), round(length_us * US), correlation_id=1, **stats
        )
        self.streams.setdefault((gpu, stream), []).append(event)
        self.now[gpu] = max(self.now.get(gpu, 0), begin_us + length_us)

    def run(self, program, *kernels, gpu=0, gap_us=1.0):
        """One execution: (instruction, kernel, length in microseconds), one after the other."""
        for operation, label, length in kernels:
            begin = self.now.get(gpu, 0) + (gap_us if gpu in self.now else 0)
            said = {"hlo_op": operation, "hlo_module": "jit_step", "program_id": program}
            self.kernel(label, begin, length, gpu=gpu, **said)

    def content(self, hostname="host"):
        """The bytes of its XSpace."""
        for plane in self.planes.values():
            plane.lines, plane.own = [], b""
        for (gpu, stream), events in self.streams.items():
            self.planes[gpu].line(f"Stream #{stream}(Compute)", events, number_=stream)
        for plane in self.planes.values():
            for name, value in self.card.items():
                plane.plane_stat(name, value)
        metadata = PlaneWriter("/host:metadata")
        for program, text in self.programs.items():
            name = f"jit_step({program})"
            metadata.event(name, 0, 0)
            metadata.describe(name, **{"Hlo Proto": serialized(text), "program_id": program})
        return space(*self.planes.values(), metadata, hostnames=(hostname,))

    def read(self, folder, **options):
        """The trace that hloscope makes of it."""
        path = folder / "host.xplane.pb"
        path.write_bytes(self.content())
        return read_trace(path, **options)
