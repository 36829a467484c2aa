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
