import pytest

from hloscope.pipeline.findings import Severity
from hloscope.pipeline.inputs import KnownLiteral, KnownLiterals
from hloscope.pipeline.rules import Limits

MIB = 1 << 20

# XLA keeps one constant in the loop's body and one beside the loop.
TWICE = """
TABLE = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)

def run(x):
    table = jnp.asarray(TABLE)
    def body(carry, _):
        return jnp.sin(carry @ table.T) @ table, None
    y, _ = jax.lax.scan(body, x @ table, None, length=3)
    return y

step = Step(run, (shape(8, 1024),))
"""

TEXT = """
HloModule m
ENTRY e {
  a = f32[512,1024] constant({...})
  b = f32[512,1024] constant({...})
  c = f32[512,1024] constant({...})
  d = f32[512,1024] add(a, b)
  ROOT s = f32[512,1024] add(d, c), metadata={source_file="train.py" source_line=7}
}
"""


def known(*digests, kind="data"):
    names = dict(zip("abc", digests, strict=True))
    return KnownLiterals({name: KnownLiteral(kind, None, digest) for name, digest in names.items()})


def test_copies_beyond_the_first_are_counted(findings_of):
    (finding,) = findings_of("HS302", TEXT, known("same", "same", "same"))
    assert finding.message == "f32[512,1024] is 3 times in the executable"
    copies, one, wasted = finding.evidence
    assert (copies.value, one.value, wasted.value) == (3, 2 * MIB, 4 * MIB)
    assert finding.severity is Severity.NOTE


def test_different_contents_are_no_copies(findings_of):
    assert findings_of("HS302", TEXT, known("one", "two", "three")) == ()


def test_splats_are_no_copies_of_data(findings_of):
    assert findings_of("HS302", TEXT, known("z", "z", "z", kind="zeros")) == ()


def test_contents_that_a_dump_leaves_out_cannot_be_compared(findings_of):
    assert findings_of("HS302", TEXT) == ()


def test_copies_below_the_limit_are_quiet(findings_of):
    limits = Limits(constant_bytes=4 * MIB + 1)
    assert findings_of("HS302", TEXT, known("same", "same", "same"), limits) == ()


def test_one_table_read_by_many_operations_is_quiet(found_in):
    code = """
    TABLE = np.random.default_rng(0).normal(size=(1024, 512)).astype(np.float32)
    step = Step(lambda x: (x + TABLE) * jnp.sin(x), (shape(1024, 512),))
    """
    assert found_in("HS302", code) == ()


@pytest.mark.parametrize(("target", "width"), [("cpu", 4), ("h100", 4), ("v5e:2x2", 2)])
def test_a_table_in_a_loop_and_beside_it_is_found_by_name(found_in, target, width):
    found = found_in("HS302", TWICE, target, Limits(constant_bytes=MIB // 2))
    assert found
    # One name, however many variables hold it; a TPU keeps it rounded to bfloat16.
    assert all(finding.message.startswith("TABLE (") for finding in found)
    assert all(finding.evidence[1].value == 1024 * 512 * width for finding in found)


@pytest.mark.parametrize("target", ["cpu", "v5e:2x2"])
def test_a_table_that_is_an_argument_is_one_buffer(found_in, target):
    code = TWICE.replace("run(x)", "run(x, TABLE)").replace("1024),))", "1024), shape(1024, 512)))")
    assert found_in("HS302", code, target, Limits(constant_bytes=1)) == ()
