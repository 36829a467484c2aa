import pytest

from hloscope.chips import parse_target
from hloscope.pipeline.findings import Severity

LAYERS, TOKENS, WIDTH = 12, 8192, 128


def step_text(*, recompute: bool, differentiate: bool = True) -> str:
    jax = pytest.importorskip("jax")

    def block(w, h):
        return h + jax.numpy.tanh(jax.numpy.sin(h @ w) * 2.0)

    def loss(ws, h):
        run = jax.checkpoint(block) if recompute else block
        for w in ws:
            h = run(w, h)
        return (h * h).sum()

    ws = [jax.ShapeDtypeStruct((WIDTH, WIDTH), "float32")] * LAYERS
    h = jax.ShapeDtypeStruct((TOKENS, WIDTH), "float32")
    step = jax.grad(loss) if differentiate else loss
    return jax.jit(step).lower(ws, h).compile().as_text()


def kept_bytes(finding) -> int:
    return finding.evidence[0].value


def test_activations_of_many_layers_are_found(findings_of):
    (finding,) = findings_of("HS903", step_text(recompute=False))
    assert finding.severity is Severity.WARNING
    # At least the sine's argument and the hyperbolic tangent's result of most layers.
    assert kept_bytes(finding) >= LAYERS * 4 * TOKENS * WIDTH
    assert any("test_residuals_dominate.py" in note for note in finding.notes)
    assert "jax.checkpoint" in finding.fix


def test_recomputing_keeps_less(findings_of):
    kept = [kept_bytes(f) for f in findings_of("HS903", step_text(recompute=True))]
    everything = kept_bytes(*findings_of("HS903", step_text(recompute=False)))
    assert all(one < 0.75 * everything for one in kept)


def test_a_program_without_a_backward_pass_keeps_nothing(findings_of):
    assert findings_of("HS903", step_text(recompute=False, differentiate=False)) == ()


def test_on_a_chip_with_room_to_spare_it_is_a_note(findings_of):
    text = step_text(recompute=False)
    (finding,) = findings_of("HS903", text, parse_target("h100").chip)
    assert finding.severity is Severity.NOTE
