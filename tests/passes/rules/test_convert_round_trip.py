import pytest

from hloscope.pipeline.findings import Severity, Unit
from hloscope.pipeline.rules import Limits

ROUNDED = """
def f(x, w):
    rounded = x.astype(jnp.bfloat16)
    return rounded.astype(jnp.float32) @ w

step = Step(f, (shape(512, 512), shape(512, 512)))
"""
STAYS = """
def f(x, w):
    return x @ w

step = Step(f, (shape(512, 512), shape(512, 512)))
"""
COMPUTES_BETWEEN = """
def f(x, w):
    h = jnp.tanh(x.astype(jnp.bfloat16))
    return h.astype(jnp.float32) @ w

step = Step(f, (shape(512, 512), shape(512, 512)))
"""


def test_a_value_that_is_rounded_and_widened_by_itself_is_found_with_its_bytes(found_in):
    (finding,) = found_in("HS402", ROUNDED)
    # One launch reads float32 and writes float32, where the product could read the first.
    assert finding.cost.value == 2 * 512 * 512 * 4
    assert finding.cost.unit is Unit.BYTES
    # Beside it the product reads two arrays of 1 MiB and writes one: 2 MiB of 5.
    assert finding.evidence[1].value == pytest.approx(2 / 5)
    assert finding.severity is Severity.ERROR
    assert finding.site.file.endswith("train.py")
    assert "f32 to bf16 and back" in finding.message
    assert any("rounded on the way" in note for note in finding.notes)


@pytest.mark.parametrize("target", ["cpu", "v5e"])
def test_a_value_that_stays_as_it_is_is_left_alone(found_in, target):
    assert found_in("HS402", STAYS, target) == ()


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_conversion_that_something_is_computed_in_is_left_alone(found_in, target):
    assert found_in("HS402", COMPUTES_BETWEEN, target) == ()


def test_what_is_below_the_limit_is_left_alone(found_in):
    assert found_in("HS402", ROUNDED, limits=Limits(traffic_share=0.5)) == ()


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_a_compiler_that_drops_the_pair_leaves_nothing_to_find(found_in, target):
    assert found_in("HS402", ROUNDED, target) == ()
