from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

# (older, newer) come back crosswise: each lives in the buffer of the other.
PING_PONG = """
def exchange(buffers, x):
    older, newer = buffers
    return newer, older * 0.5 + x

pair = (shape(512, 512), shape(512, 512))
step = Step(exchange, (pair, shape(512, 512)), donate=(0,))
"""

STRAIGHT = """
def update(older, newer, x):
    return older * 0.5 + x

step = Step(update, (shape(512, 512), shape(512, 512), shape(512, 512)), donate=(0,))
"""


def test_buffers_that_are_returned_crosswise_are_copied(found_in):
    found = found_in("HS703", PING_PONG)
    assert found
    assert {finding.cost.value % (512 * 512 * 4) for finding in found} == {0}
    assert {finding.site.leaf for finding in found} <= {"buffers[0]", "buffers[1]"}
    assert found[0].severity is Severity.WARNING


def test_the_same_update_in_place_is_quiet(found_in):
    assert found_in("HS703", STRAIGHT) == ()


def test_copies_below_the_limit_are_quiet(found_in):
    assert found_in("HS703", PING_PONG, limits=Limits(donation_bytes=64 << 20)) == ()


def test_a_cache_that_is_written_in_place_is_quiet(found_in):
    code = """
    def write(cache, x, position):
        return jax.lax.dynamic_update_slice(cache, x[None], (position, 0))

    step = Step(write, (shape(2048, 512), shape(512), shape(dtype="int32")), donate=(0,))
    """
    assert found_in("HS703", code) == ()


def test_crosswise_buffers_are_copied_on_a_gpu_as_well(found_in):
    assert found_in("HS703", PING_PONG, "h100")
    assert found_in("HS703", STRAIGHT, "h100") == ()


def test_crosswise_buffers_are_copied_on_a_tpu_as_well(found_in):
    # 128 MiB each: smaller ones are exchanged through VMEM.
    large = PING_PONG.replace("512, 512", "8192, 4096")
    found = found_in("HS703", large, "v5e:2x2")
    assert {finding.cost.value % (8192 * 4096 * 4) for finding in found} == {0}
    assert found
    assert found_in("HS703", STRAIGHT.replace("512, 512", "8192, 4096"), "v5e:2x2") == ()
