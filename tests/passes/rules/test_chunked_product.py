import pytest

from hloscope.passes.chunked_loops import ChunkedLoops
from hloscope.passes.traffic import Traffic
from hloscope.pipeline.findings import Basis, Severity, Unit
from hloscope.pipeline.rules import RULES, Limits, call
from hloscope.pipeline.session import Session

HEAD = """
T, D, V, CHUNKS = 2048, 256, 8192, {chunks}

def of(x, w, y):
    logits = (x @ w).astype(jnp.float32)
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]).sum()

def loss(w, x, y):
    if CHUNKS == 1:
        return of(x, w, y)
    def chunk(total, xy):
        return total + of(xy[0], w, xy[1]), None
    chunks = x.reshape(CHUNKS, -1, D), y.reshape(CHUNKS, -1)
    return jax.lax.scan(chunk, 0.0, chunks)[0]

step = Step({what}, (shape(D, V, dtype="bfloat16"), shape(T, D, dtype="bfloat16"),
                     shape(T, dtype="int32")))
"""
WEIGHTS = 256 * 8192 * 2


def found_by(session):
    return call(RULES["HS509"], session.arguments(RULES["HS509"].needs))


def test_chunks_of_a_head_cost_what_the_module_in_one_piece_saves(captured):
    chunked = captured(HEAD.format(chunks=8, what="loss"), "h100")
    (finding,) = found_by(chunked)
    assert finding.cost.value == 7 * WEIGHTS
    assert finding.cost.unit is Unit.BYTES
    assert "in 8 chunks what would fit in one piece" in finding.message
    assert (finding.site.file, finding.site.line is not None) == ("train.py", True)
    whole = captured(HEAD.format(chunks=1, what="loss"), "h100")
    assert found_by(whole) == ()
    more = chunked.get(Traffic).total() - whole.get(Traffic).total()
    assert finding.cost.value == pytest.approx(more, rel=0.15)
    launched = [sum(r.times.nominal for r in s.get(Traffic).rows) for s in (chunked, whole)]
    assert finding.evidence[2].value == pytest.approx(launched[0] - launched[1], rel=0.3)
    saved = finding.evidence[3]
    assert saved.basis is Basis.BOUNDED
    assert saved.value >= 2048 * 8192 * 2 * 7 // 8
    # Where the memory asks for chunks there are none too many.
    full = Session(chunked.subject, given={Limits: Limits(filled_share=1e-9)})
    assert found_by(full) == ()


def test_the_gradient_adds_to_the_weights_gradient_in_each_chunk(captured):
    session = captured(HEAD.format(chunks=4, what="jax.grad(loss)"), "h100")
    (finding,) = found_by(session)
    added = sum(row.added for row in session.get(ChunkedLoops).rows)
    assert added == 2 * WEIGHTS
    assert finding.cost.value >= 3 * (WEIGHTS + added)


def test_chunks_that_stay_in_a_tpus_vector_memory_are_left_alone(captured):
    assert found_by(captured(HEAD.format(chunks=8, what="loss"), "v5e")) == ()


LOOP = """
HloModule m, is_scheduled=true
cond { p = (s32[], f32[256,256], f32[256,256], f32[4,256,256]) parameter(0)
       ROOT go = pred[] constant(true) }
body {
  p = (s32[], f32[256,256], f32[256,256], f32[4,256,256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  w = f32[256,256] get-tuple-element(p), index=1
  sum = f32[256,256] get-tuple-element(p), index=2
  xs = f32[4,256,256] get-tuple-element(p), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = s32[] constant(0)
  x = f32[1,256,256] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,256,256}
  x2 = f32[256,256] bitcast(x)
  y = f32[256,256] dot(LEFT, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  more = f32[256,256] add(sum, y)
  ROOT r = (s32[], f32[256,256], f32[256,256], f32[4,256,256]) tuple(next, w, more, xs)
}
ENTRY e {
  w = f32[256,256] parameter(0)
  xs = f32[4,256,256] parameter(1)
  n = s32[] constant(0)
  init = (s32[], f32[256,256], f32[256,256], f32[4,256,256]) tuple(n, w, w, xs)
  l = (s32[], f32[256,256], f32[256,256], f32[4,256,256]) while(init), condition=cond, body=body,
    backend_config={"known_trip_count":{"n":"4"}}
  ROOT s = f32[256,256] get-tuple-element(l), index=2
}
"""
SQUARE = 256 * 256 * 4


def test_an_iteration_reads_the_weights_and_what_it_adds_to_again(session_of):
    (row,) = session_of(LOOP.replace("LEFT", "x2")).get(ChunkedLoops).rows
    assert (row.chunks, row.reread, row.added) == (4, SQUARE, 2 * SQUARE)
    assert row.extra_bytes(1) == 3 * 3 * SQUARE
    assert row.extra_bytes(2) == 2 * 3 * SQUARE
    # The slice and its product.
    assert (row.held, row.extra_memory(2)) == (2 * SQUARE, 2 * SQUARE)
    assert row.divisors() == [1, 2]


def test_a_product_of_the_sum_so_far_waits_for_it(session_of):
    assert session_of(LOOP.replace("LEFT", "sum")).get(ChunkedLoops).rows == ()


def test_where_the_memory_is_not_known_it_is_a_note(findings_of):
    (finding,) = findings_of("HS509", LOOP.replace("LEFT", "x2"))
    assert finding.severity is Severity.NOTE
    assert "if the memory of the chip" in finding.fix
    assert findings_of("HS509", LOOP.replace("LEFT", "sum")) == ()
