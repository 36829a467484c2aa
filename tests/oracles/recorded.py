"""Recordings of a GPU, built of kernels with times in milliseconds."""

from oracles.xspaces import PlaneWriter, space

from hloscope.traces.reading import read_recording

ONE_MS = 10**9  # picoseconds


def gpu(kernels, number=0, module="jit_step", program=7):
    """A plane with one stream.

    Args:
        kernels: Operation, begin and duration in milliseconds, and run of each.
        number: The device's.
        module: Name of the program.
        program: Its id.
    """
    plane = PlaneWriter(f"/device:GPU:{number}")
    events = [
        plane.event(
            name,
            round(begin * ONE_MS),
            round(length * ONE_MS),
            hlo_op=name,
            hlo_module=module,
            program_id=program,
            run_id=run + 1,
            correlation_id=place + 1,
        )
        for place, (name, begin, length, run) in enumerate(kernels)
    ]
    plane.line("Stream #7(Compute)", events)
    return plane


def recorded(folder, *planes, name="host"):
    """Write planes to a file, and read it."""
    path = folder / f"{name}.xplane.pb"
    path.write_bytes(space(*planes, hostnames=(name,)))
    return read_recording(path)
