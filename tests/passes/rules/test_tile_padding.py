import pytest

from hloscope.pipeline.findings import Severity, Unit

MLP = """
def f(x, up, down):
    return jnp.tanh(x @ up) @ down

def of(*sizes):
    return shape(*sizes, dtype="bfloat16")

step = Step(f, (of({tokens}, {width}), of({width}, {hidden}), of({hidden}, {width})))
"""
ATTENTION = """
def attend(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, implementation="xla")

q = shape(2, 512, 4, {depth}, dtype="bfloat16")
step = Step(attend, (q, q, q))
"""
HEAD = """
def f(x, w):
    return x @ w

step = Step(f, (shape(4096, 1024, dtype="bfloat16"), shape(1024, {words}, dtype="bfloat16")))
"""


def test_a_width_between_tiles_is_found_with_what_its_padding_takes(found_in):
    (finding,) = found_in("HS503", MLP.format(tokens=8192, width=1088, hidden=4096), "v5e")
    # Of the two products the first sums over 1088, in nine tiles of 128.
    assert finding.evidence[2].value == pytest.approx(1088 / 1152)
    lost = (1152 / 1088 - 1) / 2
    assert finding.evidence[1].value == pytest.approx(lost / (1 + lost), rel=0.01)
    assert finding.cost.unit is Unit.SECONDS
    assert finding.site.file == "train.py"
    assert any("summed size 1088 -> 1152" in note for note in finding.notes)
    assert "multiple of 128" in finding.fix


@pytest.mark.parametrize("target", ["v5e", "h100"])
def test_whole_tiles_are_left_alone(found_in, target):
    assert found_in("HS503", MLP.format(tokens=4096, width=1024, hidden=4096), target) == ()


def test_heads_of_half_a_tile_are_found(found_in):
    (finding,) = found_in("HS503", ATTENTION.format(depth=64), "v5e")
    assert finding.evidence[2].value == pytest.approx(1 / 2)
    assert any("summed size 64 -> 128" in note for note in finding.notes)
    assert finding.severity is Severity.ERROR


def test_heads_of_a_whole_tile_are_left_alone(found_in):
    assert found_in("HS503", ATTENTION.format(depth=128), "v5e") == ()


def test_a_product_that_waits_for_its_weights_loses_nothing(found_in):
    assert found_in("HS503", MLP.format(tokens=4, width=1088, hidden=4096), "v5e") == ()


def test_a_cpu_has_no_tiles(found_in):
    assert found_in("HS503", MLP.format(tokens=256, width=1088, hidden=130), "cpu") == ()


def test_an_odd_vocabulary_is_named_on_a_gpu(found_in):
    (finding,) = found_in("HS503", HEAD.format(words=50257), "h100")
    assert finding.severity is Severity.NOTE
    assert "rows are no multiple of 16 bytes" in finding.message
    assert "50257 a multiple of 8" in finding.fix


def test_an_even_vocabulary_is_left_alone(found_in):
    assert found_in("HS503", HEAD.format(words=50304), "h100") == ()


def test_a_product_with_a_vector_has_no_tiles_to_fill(found_in):
    code = """
    def f(x, v):
        return x @ v

    step = Step(f, (shape(64, 100), shape(100)))
    """
    assert found_in("HS503", code, "v5e") == ()
