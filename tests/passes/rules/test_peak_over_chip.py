import dataclasses

import pytest

from hloscope.chips import parse_target
from hloscope.errors import CaptureError, Unavailable
from hloscope.passes.batch_fit import LINEAR
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.rules import RULES, call

GIB = 1 << 30


def outer(size: int) -> str:
    jax = pytest.importorskip("jax")

    def sorted_rows(x):
        return jax.numpy.sort(x[:, None] + x[None], axis=1).sum()

    return jax.jit(sorted_rows).lower(jax.ShapeDtypeStruct((size,), "float32")).compile().as_text()


def step(tokens: int) -> str:
    """Two layers whose activations take 4 x 128 bytes a token each."""
    return f"""
    def loss(w, batch):
        return (jnp.tanh(jnp.tanh(batch @ w) @ w) ** 2).sum()

    def train(state, batch):
        return state - 0.1 * jax.grad(loss)(state, batch)

    step = Step(train, (shape(128, 128), shape({tokens}, 128)), donate=(0,))
    """


def quantities(finding):
    return {quantity.name: quantity for quantity in finding.evidence}


def test_a_program_that_needs_more_than_the_chip_has_is_found(findings_of):
    chip = parse_target("v5e").chip
    (finding,) = findings_of("HS901", outer(70_000), chip)  # 4 x 70,000^2 = 18.3 GiB
    peak = quantities(finding)["peak"]
    assert peak.value >= 4 * 70_000**2
    assert peak.basis is Basis.MODELLED
    assert finding.cost.value == peak.value - chip.memory_bytes
    assert finding.severity is Severity.ERROR
    assert "v5e" in finding.message
    assert any("temporary" in note and "GiB" in note for note in finding.notes)


def test_on_a_gpu_the_largest_batch_and_what_keeps_memory_are_named(found_in):
    tokens = 1 << 27  # of which each activation takes 64 GiB
    (finding,) = found_in("HS901", step(tokens), "h100")
    found = quantities(finding)
    assert found["peak"].value >= 2 * tokens * 512
    assert found["batch"].value == tokens
    # One token takes its row of the batch and at least one activation beside it.
    assert 0 < found["largest batch"].value <= parse_target("h100").chip.memory_bytes // 1024
    assert (found["largest batch"].basis, found["largest batch"].model) == (
        Basis.MODELLED,
        LINEAR,
    )
    assert f"to about {found['largest batch'].value}" in finding.fix
    assert any("parameter 64.0 GiB" in note for note in finding.notes)


def test_arguments_that_are_too_large_alone_need_no_recomputation(found_in):
    program = f"step = Step(lambda a, b: (a * b).sum(), (shape({12 * GIB}), shape({12 * GIB})))"
    (finding,) = found_in("HS901", program, "h100")
    assert quantities(finding)["resident"].value >= 96 * GIB
    assert "shard the state" in finding.fix
    assert "jax.checkpoint" not in finding.fix


def test_a_tpu_program_fits_its_chip_and_not_one_with_a_quarter_of_the_memory(captured):
    session = captured(step(1 << 23), "v5e")  # at least 8 GiB
    rule = RULES["HS901"]
    assert call(rule, session.arguments(rule.needs)) == ()
    needs = session.arguments(rule.needs)
    chip = dataclasses.replace(parse_target("v5e").chip, memory_bytes=4 * GIB)
    given = {**needs, "chip": chip}
    (finding,) = call(rule, given)
    assert quantities(finding)["peak"].value >= 8 * GIB


def test_what_a_tpus_compiler_refuses_says_how_much_it_needs(found_in):
    with pytest.raises(CaptureError, match="does not fit v5e") as error:
        found_in("HS901", step(1 << 26), "v5e")
    assert "exceeds available HBM" in error.value.detail
    assert "--target cpu --chip v5e" in error.value.hint


def test_a_program_that_fits_its_gpu_is_left_alone(found_in):
    assert found_in("HS901", step(1 << 10), "h100") == ()


def test_a_program_that_fits_is_left_alone(findings_of):
    assert findings_of("HS901", outer(70_000), parse_target("h100").chip) == ()
    assert findings_of("HS901", outer(1_000), parse_target("v5e").chip) == ()


def test_a_chip_whose_memory_is_unknown_is_said_to_be(findings_of):
    chip = dataclasses.replace(parse_target("v5e").chip, memory_bytes=None)
    with pytest.raises(Unavailable, match="memory of v5e"):
        findings_of("HS901", outer(8), chip)


def test_without_a_chip_or_a_schedule_nothing_is_claimed(findings_of):
    with pytest.raises(Unavailable, match="chip"):
        findings_of("HS901", outer(8))
    unscheduled = "HloModule m\nENTRY e {\n ROOT p = f32[8] parameter(0)\n}"
    with pytest.raises(Unavailable, match="not scheduled"):
        findings_of("HS901", unscheduled, parse_target("v5e").chip)
