"""Loops of kernels with little work in each, in steps compiled for real."""

import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.rules import Limits

RECURRENT = """
def run(params, batch):
    def cell(h, x):
        z = jax.nn.sigmoid(x @ params["wz"] + h @ params["uz"])
        n = jnp.tanh(x @ params["wn"] + (z * h) @ params["un"])
        h = (1 - z) * h + z * n
        return h, h
    return jax.lax.scan(cell, jnp.zeros((32, 64)), batch)[1]

step = Step(run, ({name: shape(64, 64) for name in ("wz", "uz", "wn", "un")}, shape(1000, 32, 64)))
"""

# A causal convolution as a sum over its taps, for every position by itself.
TAPS = """
def run(kernel, batch):
    def position(t, out):
        def tap(k, y):
            return y + jax.lax.dynamic_index_in_dim(batch, t - k, 0, False) @ kernel[k]
        y = jax.lax.fori_loop(0, 8, tap, jnp.zeros((4, 64)))
        return jax.lax.dynamic_update_index_in_dim(out, y, t, 0)
    return jax.lax.fori_loop(8, 520, position, jnp.zeros((520, 4, 64)))

step = Step(run, (shape(8, 64, 64), shape(520, 4, 64)))
"""

# The same sum as one product over all positions.
AS_ONE = """
def run(kernel, batch):
    padded = jnp.transpose(batch, (1, 0, 2))
    return jax.lax.conv_general_dilated(
        padded, kernel, (1,), [(7, 0)], dimension_numbers=("NWC", "WIO", "NWC"))

step = Step(run, (shape(8, 64, 64), shape(520, 4, 64)))
"""

LAYERS = """
def run(params, batch):
    def layer(h, w):
        return jnp.tanh(h @ w), None
    return jax.lax.scan(layer, batch, params)[0]

step = Step(run, (shape(1000, 4096, 4096, dtype="bfloat16"), shape(8192, 4096, dtype="bfloat16")))
"""


def test_a_recurrence_over_many_short_steps_is_found(found_in):
    (finding,) = found_in("HS506", RECURRENT, "h100")
    launches, whole, overhead, work, share = finding.evidence
    assert launches.value >= 3000
    assert launches.value % 1000 == 0
    assert whole.value >= launches.value
    assert overhead.value + work.value == pytest.approx(launches.value * 1e-6)
    assert (overhead.unit, finding.cost) == (Unit.SECONDS, overhead)
    assert 0.5 < share.value < 1
    assert finding.severity is Severity.ERROR
    assert (finding.site.file, finding.site.line) == ("train.py", 15)
    assert any("runs 1000 times" in note for note in finding.notes)


def test_a_convolution_written_as_loops_is_found_and_one_convolution_is_not(found_in):
    (finding,) = found_in("HS506", TAPS, "h100")
    # At least one kernel for each of eight taps of 512 positions.
    assert finding.evidence[0].value >= 512 * 8
    assert any(note.startswith("inside of") for note in finding.notes)
    assert found_in("HS506", AS_ONE, "h100") == ()


def test_a_loop_over_layers_with_large_products_is_left_alone(found_in):
    assert found_in("HS506", LAYERS, "h100") == ()


def test_below_the_limits_it_is_quiet(found_in):
    assert found_in("HS506", RECURRENT, "h100", Limits(loop_launches=100_000)) == ()
    assert found_in("HS506", RECURRENT, "h100", Limits(launch_share=1.0)) == ()


@pytest.mark.parametrize("target", ["cpu", "v5e"])
def test_where_nothing_is_known_of_launches_it_does_not_look(found_in, target):
    with pytest.raises(Unavailable, match="for GPUs only"):
        found_in("HS506", LAYERS.replace("4096", "64").replace("8192", "64"), target)
