import pytest

from hloscope.errors import Unavailable
from hloscope.pipeline.rules import Limits

FOLDED = """
TABLE = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)

def run(x):
    return x + {table}

step = Step(run, (shape(1024, 512),))
"""


def test_what_xla_computes_from_a_constant_is_found(found_in):
    (finding,) = found_in("HS303", FOLDED.format(table="jnp.asarray(TABLE)[::-1]"))
    assert finding.message == "XLA folded operations on constants into f32[1024,512]"
    assert finding.cost.value == 1024 * 512 * 4
    assert finding.notes == (
        "known because no array of the jaxpr has its contents",
        "the only closed-over array with as many elements is TABLE",
    )
    # It is no array that the step closed over, so HS301 leaves it to this rule.
    assert found_in("HS301", FOLDED.format(table="jnp.asarray(TABLE)[::-1]")) == ()


def test_an_array_that_is_used_as_it_is_was_not_folded(found_in):
    assert found_in("HS303", FOLDED.format(table="TABLE")) == ()
    (finding,) = found_in("HS301", FOLDED.format(table="TABLE"))
    assert finding.message == "TABLE (f32[1024,512]) is baked into the executable"


def test_a_sum_that_is_computed_in_the_step_is_quiet(found_in):
    assert found_in("HS303", FOLDED.format(table="jnp.arange(512, dtype=x.dtype)")) == ()


def test_folds_below_the_limit_are_quiet(found_in):
    limits = Limits(constant_bytes=4 << 20)
    code = FOLDED.format(table="jnp.asarray(TABLE)[::-1]")
    assert found_in("HS303", code, limits=limits) == ()


def test_a_dump_cannot_tell(findings_of):
    text = "HloModule m\nENTRY e { ROOT c = f32[512,1024] constant({...}) }"
    with pytest.raises(Unavailable, match="cannot be told from others"):
        findings_of("HS303", text)


def test_a_table_that_a_tpu_rounds_for_its_products_is_folded_from_it(found_in):
    code = """
    TABLE = np.random.default_rng(0).normal(size=(1024, 1024)).astype(np.float32)
    step = Step(lambda x: jnp.sin(x) @ TABLE, (shape(64, 1024),))
    """
    (finding,) = found_in("HS303", code, "v5e:2x2")
    assert finding.message == "XLA folded operations on constants into bf16[1024,1024]"
    assert finding.cost.value == 1024 * 1024 * 2
    assert "TABLE" in finding.fix
