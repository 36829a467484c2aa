"""Recordings of runs whose times are known because they are written here."""

from oracles.xspaces import PlaneWriter, space

US = 1_000_000  # picoseconds


def gpu_plane(number, steps, module="jit_step"):
    """A GPU that runs steps.

    Args:
        number: Its number.
        steps: Of each where it begins, and what it runs: (stream, kernel, operation, offset,
            duration), all times in microseconds.
        module: The program that every step is an execution of.
    """
    plane = PlaneWriter(f"/device:GPU:{number}")
    streams = {}
    for run, (begin, work) in enumerate(steps):
        for stream, kernel, operation, offset, duration in work:
            stats = {"correlation_id": run + 1}
            if operation:
                stats |= {"hlo_module": module, "hlo_op": operation, "run_id": run + 1}
            event = plane.event(kernel, round((begin + offset) * US), round(duration * US), **stats)
            streams.setdefault(stream, []).append(event)
    for stream, events in streams.items():
        kind = "NCCL" if stream == 2 else "Compute"
        plane.line(f"Stream #{stream}({kind})", events, number_=stream)
    return plane


def host_plane(annotations):
    """The host's thread with annotated steps: number, beginning and duration in us."""
    plane = PlaneWriter("/host:CPU")
    events = [
        plane.event("train", round(begin * US), round(duration * US), step_num=number)
        for number, begin, duration in annotations
    ]
    plane.line("python", events, number_=1)
    return plane


def run(*devices, annotations=(), module="jit_step"):
    """The bytes of a recording of devices, each a list of steps for :func:`gpu_plane`."""
    planes = [gpu_plane(number, steps, module) for number, steps in enumerate(devices)]
    return space(*planes, *([host_plane(annotations)] if annotations else []))
