"""Files of a profiler that are broken, and what is said of them."""

from oracles.xspaces import PlaneWriter

import hloscope
from hloscope.errors import InputError

US = 1_000_000  # picoseconds

RECORDED = [
    "amd_mi300x_attention",
    "amd_mi300x_conv_old_format",
    "amd_mi355x_te_fused_attention",
    "cpu_no_device_plane",
    "nvidia_2x_gtx1080ti_fusion",
]


def gpu_plane(ordinal, kernels=4):
    """A GPU whose kernels run for 3 us of every 10."""
    plane = PlaneWriter(f"/device:GPU:{ordinal}")
    events = [
        plane.event(f"k{n % 2}", 10 * n * US, 3 * US, correlation_id=n + 1) for n in range(kernels)
    ]
    plane.line("Stream #7(Compute)", events, 1000, 7)
    plane.plane_stat("device_vendor", "Nvidia")
    return plane


def or_error(ask):
    """What a call gives, or the error that it ends with."""
    try:
        return ask()
    except InputError as error:
        return error


def answer(path):
    """What is said of a file: a report, or an error that names its place and the next step."""
    found = or_error(lambda: hloscope.trace(path))
    if isinstance(found, InputError):
        assert str(path) in found.place
        assert found.message
        assert found.hint
    return found
