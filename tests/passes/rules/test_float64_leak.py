import pytest

from hloscope.errors import Unavailable
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


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
def test_a_numpy_array_that_makes_the_rest_float64_is_found_on_its_line(found_in, target):
    findings = found_in("HS405", LEAK, target)
    worst = max(findings, key=lambda finding: finding.cost.value)
    # The argument is widened and multiplied: at least two arrays of 256 x 1024.
    assert worst.cost.value >= 2 * 256 * 1024 * 8
    assert worst.severity is Severity.ERROR
    assert worst.site.file.endswith("train.py")
    assert any("comes in here, from f32 by convert" in note for note in worst.notes)


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e"])
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


SPREADS = """
jax.config.update("jax_enable_x64", True)

def f(x, w):
    h = (x @ w) * np.linspace(0.0, 1.0, 512)
    h = jnp.tanh(h)
    h, _ = jax.lax.scan(lambda h, _: (jnp.sin(h), None), h, None, length=3)
    return (h + jnp.zeros((256, 512))).astype(jnp.float32) @ w

step = Step(f, (shape(256, 512), shape(512, 512)))
"""


@pytest.mark.parametrize("target", ["cpu", "v5e"])
def test_lines_that_only_compute_on_are_part_of_the_finding_where_it_begins(found_in, target):
    (finding,) = found_in("HS405", SPREADS, target)
    quantities = {quantity.name: quantity.value for quantity in finding.evidence}
    one = 256 * 512 * 8
    # Three sines in the loop, and at least the tanh, come after.
    assert quantities["of these on other lines"] >= 4 * one
    assert quantities["bytes computed"] >= quantities["of these on other lines"] + 2 * one
    assert any("compute on with what is made here" in note for note in finding.notes)
    before = any("before optimization" in note for note in finding.notes)
    assert before is (target == "v5e")  # a TPU's module holds pairs of float32 instead


def test_a_tpu_program_whose_module_before_optimization_is_not_known_is_not_judged(
    findings_of, fixtures_dir
):
    text = (fixtures_dir / "compiled" / "today" / "tpu_scan_train.hlo").read_text()
    with pytest.raises(Unavailable, match="pairs of 32-bit numbers"):
        findings_of("HS405", text)
