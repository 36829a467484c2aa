import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

VOCABULARY, WIDTH, TOKENS = 8192, 256, 1024


def loss_text(pieces: int) -> str:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def piece(head, h, labels):
        logits = h @ head
        picked = jnp.take_along_axis(logits, labels[:, None], 1)
        return (jax.nn.logsumexp(logits, axis=1) - picked[:, 0]).sum()

    def whole(head, h, labels):
        if pieces == 1:
            return piece(head, h, labels)
        step = jax.checkpoint(lambda total, xs: (total + piece(head, *xs), None))
        split = (h.reshape(pieces, -1, WIDTH), labels.reshape(pieces, -1))
        return jax.lax.scan(step, 0.0, split)[0]

    shapes = (
        jax.ShapeDtypeStruct((WIDTH, VOCABULARY), "float32"),
        jax.ShapeDtypeStruct((TOKENS, WIDTH), "float32"),
        jax.ShapeDtypeStruct((TOKENS,), "int32"),
    )
    return jax.jit(jax.grad(whole)).lower(*shapes).compile().as_text()


def test_logits_over_the_whole_vocabulary_are_found_with_their_line(findings_of):
    found = findings_of("HS902", loss_text(1))
    assert found
    assert max(f.cost.value for f in found) == 4 * TOKENS * VOCABULARY
    assert all(f.site.file.endswith("test_single_buffer_dominates.py") for f in found)
    assert all(f.severity is Severity.ERROR for f in found)


def test_logits_in_pieces_are_left_alone(findings_of):
    assert findings_of("HS902", loss_text(16)) == ()


def test_arguments_and_what_is_small_are_left_alone(findings_of):
    jax = pytest.importorskip("jax")
    shape = jax.ShapeDtypeStruct((4096, 4096), "float32")
    text = jax.jit(lambda x: x.sum()).lower(shape).compile().as_text()
    assert findings_of("HS902", text) == ()
    assert findings_of("HS902", loss_text(1), Limits(memory_bytes=1 << 26)) == ()
