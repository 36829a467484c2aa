"""Recordings of training loops on a GPU, written event by event; times are in microseconds."""

from oracles.xspaces import PlaneWriter, space

US = 1_000_000  # picoseconds
FRAME = "$train.py:7 loop"
WAIT = "$api.py:3105 block_until_ready"


class GpuLoop:
    """One host thread that drives one GPU."""

    def __init__(self):
        self.host, self.gpu = PlaneWriter("/host:CPU"), PlaneWriter("/device:GPU:0")
        self.thread, self.launches, self.stream, self.copies = [], [], [], []

    def step(self, number, begin, length):
        self._on_host("train", begin, length, step_num=number)

    def event(self, name, begin, length):
        self._on_host(name, begin, length)

    def _on_host(self, name, begin, length, **stats):
        self.thread.append(self.host.event(name, begin * US, length * US, **stats))

    def launch(self, begin, length, correlation):
        event = self.host.event(
            "hipLaunchKernel", begin * US, length * US, correlation_id=correlation
        )
        self.launches.append(event)

    def kernel(self, begin, length, correlation, module="jit_step", op="fusion.1"):
        self.stream.append(
            self.gpu.event(
                op,
                begin * US,
                length * US,
                correlation_id=correlation,
                hlo_op=op,
                hlo_module=module,
            )
        )

    def copy_to_host(self, begin, length, correlation):
        details = "kind_src:device kind_dst:pageable size:4096 dest:0 async:1"
        event = self.gpu.event(
            "MemcpyD2H",
            begin * US,
            length * US,
            correlation_id=correlation,
            memcpy_details=details,
        )
        self.copies.append(event)

    def write(self, path):
        """Write it as a profile's file; gives the path."""
        if self.thread:
            self.host.line("python", self.thread, number_=1)
        if self.launches:
            self.host.line("Host Threads/7", self.launches, number_=2)
        self.gpu.line("Stream #7(Compute)", self.stream, number_=7)
        if self.copies:
            self.gpu.line("Stream #8(MemcpyD2H)", self.copies, number_=8)
        file = path / "host.xplane.pb"
        file.write_bytes(space(self.host, self.gpu))
        return file


def waiting(path):
    """Four steps of a thousand, of which the device works five hundred; each is waited for.

    From 0 the host calls (200, of which it launches from 50 to 190), waits until 700, runs
    Python until 900 and is between steps until 1000; the kernel runs from 150 to 650.
    """
    loop = GpuLoop()
    loop.event(FRAME, 0, 4000)
    for number in range(4):
        begin = 1000 * number
        loop.step(number, begin, 900)
        loop.event("PjitFunction(step)", begin, 200)
        loop.event("PjRtStreamExecutorLoadedExecutable::Execute", begin + 50, 140)
        loop.launch(begin + 100, 20, number + 1)
        loop.kernel(begin + 150, 500, number + 1)
        loop.event(WAIT, begin + 200, 500)
    return loop.write(path)


def ahead(path):
    """Four calls of 80, one each 100, and four kernels of 500 without a gap from 150 on."""
    loop = GpuLoop()
    loop.event(FRAME, 0, 2500)
    for number in range(4):
        begin = 100 * number
        loop.step(number, begin, 90)
        loop.event("PjitFunction(step)", begin, 80)
        loop.launch(begin + 40, 20, number + 1)
        loop.kernel(150 + 500 * number, 500, number + 1)
    loop.event(WAIT, 400, 1800)
    return loop.write(path)
