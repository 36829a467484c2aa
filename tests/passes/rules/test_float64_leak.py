import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.rules import Limits

SCALED = """
jax.config.update("jax_enable_x64", True)

def f(x):
    return jnp.sum(x * np.linspace(0.0, 1.0, 1024{dtype}))

step = Step(f, (shape(256, 1024{given}),))
"""
LEAK = SCALED.format(dtype="", given="")
CLEAN = SCALED.format(dtype=", dtype=np.float32", given="")
ON_PURPOSE = SCALED.format(dtype="", given=', dtype="float64"')


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_a_numpy_array_that_makes_the_rest_float64_is_found_on_its_line(found_in, target):
    findings = found_in("HS405", LEAK, target)
    worst = max(findings, key=lambda finding: finding.cost.value)
    # The argument is widened and multiplied: at least two arrays of 256 x 1024.
    assert worst.cost.value >= 2 * 256 * 1024 * 8
    assert worst.severity is Severity.ERROR
    assert worst.site.file.endswith("train.py")
    assert any("comes in here, from f32 by convert" in note for note in worst.notes)


@pytest.mark.parametrize("target", ["cpu", "h100"])
def test_the_same_array_in_float32_is_left_alone(found_in, target):
    assert found_in("HS405", CLEAN, target) == ()


def test_a_float64_program_is_not_scolded_for_what_it_is(found_in):
    assert found_in("HS405", ON_PURPOSE) == ()


def test_single_numbers_in_float64_are_left_alone(found_in):
    code = """
    jax.config.update("jax_enable_x64", True)

    def f(x, count):
        rate = 1e-3 * 0.5 ** count
        return x - rate.astype(jnp.float32)

    step = Step(f, (shape(256, 1024), shape(dtype="float64")))
    """
    assert found_in("HS405", code, limits=Limits(float64_bytes=0)) == ()
