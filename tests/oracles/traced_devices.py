"""Recordings of devices, built event by event: times are in microseconds."""

import pytest
from oracles.xspaces import PlaneWriter, message, number, varint

US = 1_000_000  # picoseconds

ALL_REDUCE = """
HloModule jit_step, is_scheduled=true, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  p = f32[1024]{0} parameter(0)
  ROOT all-reduce.1 = f32[1024]{0} all-reduce(p), channel_id=1, replica_groups=GROUPS,
    use_global_device_ids=true, to_apply=add
}
"""
"""An all-reduce of 4 KiB over GROUPS."""


def gpu(device, streams, *, module="jit_step", program=7, timestamp_ns=0, **stats):
    """A GPU's plane.

    Args:
        device: Its number.
        streams: By stream, kernels: name, begin, length, and the HLO operation or None.
        module: The module of all of them.
        program: Its id.
        timestamp_ns: Of every line.
        stats: Of every event.
    """
    plane = PlaneWriter(f"/device:GPU:{device}")
    launched = 0
    for stream, kernels in streams.items():
        events = []
        for name, begin, length, operation in kernels:
            launched += 1
            said = {"correlation_id": launched, "kernel_details": "regs:32 grid:1,1,1", **stats}
            if operation is not None:
                said |= {"hlo_op": operation, "hlo_module": module, "program_id": program}
            events.append(plane.event(name, round(begin * US), round(length * US), **said))
        plane.line(f"Stream #{stream}(Compute)", events, timestamp_ns, stream)
    return plane


def tpu(name, lines):
    """A TPU's plane: lines by name, events as label, begin and length, and a category.

    Labels are the text of the instruction, as a TPU has them.
    """
    plane = PlaneWriter(f"/device:{name}")
    for line, events in lines.items():
        written = []
        for label, begin, length, category in events:
            written.append(plane.event(label, round(begin * US), round(length * US)))
            if category is not None:
                plane.describe(label, label.split(" = ")[0], hlo_category=category)
        plane.line(line, written)
    return plane


def assignment(*devices):
    """The field of a module's protobuf that says which device each partition runs on."""
    columns = b"".join(message(3, message(1, varint(device))) for device in devices)
    return message(15, number(1, 1) + number(2, len(devices)) + columns)


def embedded(text, *devices, name="jit_step(7)"):
    """The plane that holds the program, for some devices where these are given."""
    native = pytest.importorskip("jaxlib._hlo", reason="XLA's own parser writes the protobuf")
    plane = PlaneWriter("/host:metadata")
    plane.event(name, 0, 0)
    content = native.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    # Fields of a protobuf may stand in any order: one more is appended.
    content += assignment(*devices) if devices else b""
    plane.describe(name, **{"Hlo Proto": content})
    return plane
