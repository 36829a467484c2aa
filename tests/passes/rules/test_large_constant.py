import numpy as np
import pytest

from hloscope.ir import parse_text
from hloscope.passes.constants import find_constants
from hloscope.pipeline.findings import Category, Severity, Unit
from hloscope.pipeline.inputs import KnownLiteral, KnownLiterals
from hloscope.pipeline.rules import Limits

TEXT = """
HloModule m
ENTRY e {
  a = f32[512,1024] constant({...})
  ROOT s = f32[512,1024] add(a, a), metadata={source_file="train.py" source_line=7}
}
"""
MEBIBYTE = 1 << 20


def known(kind):
    return KnownLiterals({"a": KnownLiteral(kind, None, "digest")})


def test_real_data_is_found_with_its_line_and_bytes(findings_of):
    (finding,) = findings_of("HS301", TEXT, known("data"))
    assert (finding.site.file, finding.site.line, finding.site.instruction) == ("train.py", 7, "a")
    assert finding.category is Category.BAKED_CONSTANTS
    assert finding.severity is Severity.WARNING
    assert (finding.cost.value, finding.cost.unit) == (2 * MEBIBYTE, Unit.BYTES)
    assert "argument" in finding.fix


@pytest.mark.parametrize("kind", ["splat", "zeros", "iota"])
def test_what_xla_can_make_itself_is_not_flagged(findings_of, kind):
    assert findings_of("HS301", TEXT, known(kind)) == ()


def test_unknown_contents_are_flagged_as_unknown(findings_of):
    (finding,) = findings_of("HS301", TEXT)
    assert finding.notes == ("contents unknown: the dump elides its elements",)


def test_the_limit_is_the_users(findings_of):
    assert findings_of("HS301", TEXT, known("data"), Limits(constant_bytes=4 * MEBIBYTE)) == ()


def test_copies_of_one_array_on_one_line_are_one_finding(findings_of):
    text = TEXT.replace(
        "  ROOT s = f32[512,1024] add(a, a)",
        "  b = f32[512,1024] constant({...})\n  ROOT s = f32[512,1024] add(a, b)",
    )
    literals = KnownLiterals({n: KnownLiteral("data", None, "d") for n in "ab"})
    (finding,) = findings_of("HS301", text, literals)
    assert finding.cost.value == 4 * MEBIBYTE
    assert finding.notes == ("2 constants of the module hold the same contents",)


def test_very_large_data_is_an_error(findings_of):
    text = TEXT.replace("512,1024", "16384,1024")
    (finding,) = findings_of("HS301", text, known("data"))
    assert finding.severity is Severity.ERROR


def test_a_closed_over_array_is_found_and_an_argument_is_not(findings_of):
    jax = pytest.importorskip("jax")
    table = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)

    def compiled(function, *arguments):
        return jax.jit(function).lower(*arguments).compile().as_text()

    x = jax.ShapeDtypeStruct(table.shape, "float32")
    baked = compiled(lambda x: x + table, x)
    (finding,) = findings_of("HS301", baked)
    assert finding.cost.value == table.nbytes
    assert finding.site.file.endswith("test_large_constant.py")
    passed = compiled(lambda x, table: x + table, x, x)
    assert findings_of("HS301", passed) == ()


def test_a_mask_made_with_arange_is_not_found(findings_of):
    jax = pytest.importorskip("jax")

    def masked(x):
        seen = jax.numpy.arange(2048)[:, None] >= jax.numpy.arange(2048)
        return jax.numpy.where(seen, x, 0)

    text = jax.jit(masked).lower(jax.ShapeDtypeStruct((2048, 2048), "float32")).compile().as_text()
    assert findings_of("HS301", text) == ()


def test_the_evidence_agrees_with_the_pass(findings_of):
    constants = find_constants(parse_text(TEXT), Limits(), None)
    (finding,) = findings_of("HS301", TEXT)
    assert finding.evidence[1].value == constants.total_bytes


TABLE = """
TABLE = np.random.default_rng(0).normal(size=(4096, 4096)).astype(np.float32)

def add(x{argument}):
    return x + TABLE

step = Step(add, (shape(4096, 4096){given},))
"""


def test_a_table_of_64_mebibytes_is_an_error_by_name_and_line(found_in):
    (finding,) = found_in("HS301", TABLE.format(argument="", given=""))
    assert finding.message == "TABLE (f32[4096,4096]) is baked into the executable"
    assert finding.cost.value == 4096 * 4096 * 4 == 64 * MEBIBYTE
    assert finding.severity is Severity.ERROR
    assert finding.fix == "Pass TABLE to the step as an argument instead of closing over it."
    assert finding.site.file.endswith("train.py")


def test_the_same_table_as_an_argument_is_quiet(found_in):
    code = TABLE.format(argument=", TABLE", given=", shape(4096, 4096)")
    assert found_in("HS301", code) == ()


@pytest.mark.parametrize("target", ["cpu", "h100", "v5e:2x2"])
def test_a_closed_over_table_is_named_on_every_kind_of_chip(found_in, target):
    code = """
    class Layer:
        def __init__(self):
            self.bias = jnp.asarray(np.random.default_rng(0).normal(size=(1024, 512)), "float32")

    layer = Layer()
    step = Step(lambda x: x + layer.bias, (shape(1024, 512),))
    """
    (finding,) = found_in("HS301", code, target)
    assert finding.message == "layer.bias (f32[1024,512]) is baked into the executable"
    assert finding.cost.value == 1024 * 512 * 4


def test_a_table_that_xla_reshapes_keeps_its_name(found_in):
    code = """
    TABLE = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)
    step = Step(lambda x: jnp.sin(x) @ TABLE, (shape(64, 1024),))
    """
    (finding,) = found_in("HS301", code, "h100")  # f32[8,128,512], for a product in eight parts
    assert finding.message.startswith("TABLE (f32[")
    assert finding.cost.value == 1024 * 512 * 4


def test_masks_of_arange_are_quiet_in_a_whole_capture(found_in):
    code = """
    def attend(x):
        seen = jnp.arange(2048)[:, None] >= jnp.arange(2048)
        return jnp.where(seen, x, -jnp.inf)

    step = Step(attend, (shape(2048, 2048),))
    """
    for rule in ("HS301", "HS302", "HS303"):
        assert found_in(rule, code) == ()


def test_an_array_in_a_flax_variable_is_called_by_the_variable(found_in):
    code = """
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self):
            self.bias = nnx.Param(jnp.asarray(np.random.default_rng(0).normal(size=(1024, 512))))

    layer = Layer()
    step = Step(lambda x: x + layer.bias[...], (shape(1024, 512),))
    """
    (finding,) = found_in("HS301", code)
    assert finding.message == "layer.bias (f32[1024,512]) is baked into the executable"


def test_a_mask_made_by_numpy_is_real_data(found_in):
    code = """
    SEEN = np.tril(np.ones((2048, 2048), bool))
    step = Step(lambda x: jnp.where(SEEN, x, 0), (shape(2048, 2048),))
    """
    (finding,) = found_in("HS301", code)
    assert finding.message == "SEEN (pred[2048,2048]) is baked into the executable"
    assert finding.cost.value == 4 * MEBIBYTE
