import pytest

from hloscope.chips import parse_target
from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

TARGETS = ["cpu", "h100", "v5e"]
LAYERS, TOKENS, WIDTH = 6, 1 << 16, 128


def layers(remat: str, product: str = "h @ w") -> str:
    """Layers of one product and some elementwise operations, kept or computed again."""
    return f"""
    from jax.ad_checkpoint import checkpoint_name

    def block(h, w):
        product = checkpoint_name({product}, "product")
        return h + jnp.tanh(jnp.sin(product) * 2.0)

    names = jax.checkpoint_policies.save_only_these_names("product")
    remat = "{remat}"
    run = block
    if remat == "names":
        run = jax.checkpoint(block, policy=names, prevent_cse=False)

    def loss(ws, h):
        h, _ = jax.lax.scan(lambda h, w: (run(h, w), None), h, ws)
        return (h * h).sum()

    if remat == "whole":
        loss = jax.checkpoint(loss)

    step = Step(
        loss if remat == "forward" else jax.grad(loss),
        (shape({LAYERS}, {WIDTH}, {WIDTH}), shape({TOKENS}, {WIDTH})),
    )
    """


def quantities(finding):
    return {quantity.name: quantity.value for quantity in finding.evidence}


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_activations_of_many_layers_are_found(found_in, target):
    (finding,) = found_in("HS903", layers("none"), target)
    found = quantities(finding)
    # At least the layer's input, the sine's argument and the tangent's result of each layer.
    assert found["bytes kept"] >= 3 * LAYERS * 4 * TOKENS * WIDTH
    assert finding.site.file == "train.py"
    assert any("train.py" in note and "an iteration" in note for note in finding.notes)
    assert "jax.checkpoint with policy dots_saveable" in finding.fix
    assert found["of products"] < found["bytes kept"] / 2
    assert finding.severity is (Severity.WARNING if target == "cpu" else Severity.NOTE)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_computed_again_is_not_kept(found_in, target):
    # A TPU's compiler takes its time over products.
    product = "h * w[0]" if target == "v5e" else "h @ w"
    assert found_in("HS903", layers("none", product), target)
    assert found_in("HS903", layers("whole", product), target) == ()


def test_a_policy_that_keeps_most_is_named_with_what_it_names(found_in):
    (finding,) = found_in("HS903", layers("names"))
    found = quantities(finding)
    # Each layer's input and its product.
    assert found["bytes kept"] == 2 * LAYERS * 4 * TOKENS * WIDTH
    assert found["of products"] == LAYERS * 4 * TOKENS * WIDTH
    assert "save_only_these_names(product)" in finding.fix
    assert "named product: 192 MiB" in finding.notes


def test_a_program_without_a_backward_pass_keeps_nothing(found_in):
    assert found_in("HS903", layers("forward")) == ()


MIXED = """
HloModule m, is_scheduled=true
ENTRY e {
  w = f32[1024,1024] parameter(0), metadata={op_name="w"}
  x = f32[64,64] parameter(1), metadata={op_name="x"}
  c = bf16[1024,1024] convert(w), metadata={op_name="jit(f)/jvp()/convert_element_type"}
  h = f32[64,64] custom-call(c, x), custom_call_target="h", metadata={op_name="jit(f)/jvp()/h"}
  b = f32[64,64] custom-call(c, h), custom_call_target="b",
    metadata={op_name="jit(f)/transpose(jvp())/b"}
  ROOT r = f32[32] custom-call(b), custom_call_target="r", metadata={op_name="jit(f)/r"}
}
"""


def test_a_cast_of_the_weights_is_none_of_them(findings_of):
    limits = Limits(memory_bytes=1 << 12, residual_share=0.0)
    (finding,) = findings_of("HS903", MIXED, limits)
    assert quantities(finding)["bytes kept"] == 4 * 64 * 64
    assert quantities(finding)["arrays"] == 1


OVERWRITTEN = """
HloModule m, is_scheduled=true
ENTRY e {
  x = f32[64,64] parameter(0), metadata={op_name="x"}
  h = f32[64,64] custom-call(x), custom_call_target="h", metadata={op_name="jit(f)/jvp()/h"}
  g = f32[64,64] negate(h), metadata={op_name="jit(f)/transpose(jvp())/neg"}
  b = f32[128,64] custom-call(g), custom_call_target="b",
    metadata={op_name="jit(f)/transpose(jvp())/b"}
  ROOT r = f32[32] custom-call(b, g), custom_call_target="r", metadata={op_name="jit(f)/r"}
}
"""


def test_memory_that_the_backward_pass_took_over_is_none_of_them(findings_of):
    limits = Limits(memory_bytes=1 << 12, residual_share=0.0)
    assert findings_of("HS903", OVERWRITTEN, limits) == ()


def test_on_a_chip_with_room_to_spare_it_is_a_note(findings_of):
    text = MIXED.replace("(c, x)", "(x)").replace("(c, h)", "(h)")
    text = "\n".join(line for line in text.splitlines() if "convert" not in line)
    limits = Limits(memory_bytes=1 << 12, residual_share=0.0)
    (alone,) = findings_of("HS903", text, limits)
    (roomy,) = findings_of("HS903", text, limits, parse_target("h100").chip)
    assert (alone.severity, roomy.severity) == (Severity.WARNING, Severity.NOTE)
