import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

# Four layers in a scan, in a scan over eight microbatches.
MICROBATCHES = """
def f(layers, batches):
    {ahead}
    def microbatch(total, x):
        def layer(h, w):
            return jnp.tanh(h @ w{inside}), None
        h, _ = jax.lax.scan(layer, x, layers)
        return total + jnp.sum(h.astype(jnp.float32)), None
    return jax.lax.scan(microbatch, 0.0, batches)[0]

step = Step(f, (shape(4, 512, 512), shape(8, 64, 512, dtype="bfloat16")))
"""
INSIDE = MICROBATCHES.format(ahead="", inside=".astype(jnp.bfloat16)")
AHEAD = MICROBATCHES.format(ahead="layers = layers.astype(jnp.bfloat16)", inside="")


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_weights_that_every_microbatch_converts_are_found(found_in, target):
    (finding,) = found_in("HS403", INSIDE, target, Limits(traffic_share=0.001))
    assert finding.site.leaf == "layers"
    assert "every iteration of a loop" in finding.message
    assert "layers: converted 8 times" in finding.notes


def test_the_bytes_are_those_that_converting_once_would_save(found_in):
    (finding,) = found_in("HS403", INSIDE)
    layer, layers, runs = 512 * 512, 4 * 512 * 512, 4 * 8
    # Each run reads a layer in float32. Once: read and write all, then read bfloat16 each time.
    now, once = runs * layer * 4, layers * (4 + 2) + runs * layer * 2
    assert finding.cost.value == now - once
    # A compiler that writes each converted layer to memory first does so either way.
    assert finding.evidence[2].value - finding.evidence[3].value == now - once
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_weights_that_are_converted_ahead_of_the_loop_are_left_alone(found_in, target):
    assert found_in("HS403", AHEAD, target, Limits(traffic_share=0.0)) == ()


def test_layers_that_one_scan_converts_one_by_one_are_left_alone(found_in):
    code = """
    def f(layers, x):
        def layer(h, w):
            return jnp.tanh(h @ w.astype(jnp.bfloat16)), None
        return jax.lax.scan(layer, x, layers)[0]

    step = Step(f, (shape(4, 512, 512), shape(64, 512, dtype="bfloat16")))
    """
    assert found_in("HS403", code, limits=Limits(traffic_share=0.0)) == ()


def test_a_gathered_shard_that_is_converted_once_is_left_alone(found_in):
    # The gathered array has four times the elements of the argument.
    code = """
    def step(devices):
        mesh = Mesh(np.array(devices), ("fsdp",))
        rows = NamedSharding(mesh, P("fsdp", None))

        def local(w, x):
            return x @ jax.lax.all_gather(w, "fsdp", tiled=True).astype(jnp.bfloat16)

        f = jax.shard_map(local, mesh=mesh, in_specs=P("fsdp", None), out_specs=P("fsdp", None))
        x = shape(256, 1024, dtype="bfloat16", sharding=rows)
        return Step(f, (shape(1024, 512, sharding=rows), x))
    """
    assert found_in("HS403", code, "cpu:4", Limits(traffic_share=0.0)) == ()


REMAT = """
def f(layers, x):
    def layer(h, w):
        return jnp.tanh(h @ w.astype(jnp.bfloat16)), None
    h, _ = jax.lax.scan({layer}, x, layers)
    return jnp.sum(h.astype(jnp.float32))

step = Step(jax.grad(f), (shape(4, 512, 512), shape(64, 512, dtype="bfloat16")))
"""


def test_a_checkpoint_that_converts_again_is_found_with_what_the_remedy_keeps_alive(found_in):
    code = REMAT.format(layer="jax.checkpoint(layer)")
    (finding,) = found_in("HS403", code, "h100", Limits(traffic_share=0.0))
    assert "layers: converted 2 times" in finding.notes
    assert any("stays in memory until the backward pass" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_gradient_that_keeps_the_converted_layers_is_left_alone(found_in, target):
    code = REMAT.format(layer="layer")
    assert found_in("HS403", code, target, Limits(traffic_share=0.0)) == ()
