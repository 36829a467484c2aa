"""The memory of real programs against what XLA says of the same executables."""

import pytest

from hloscope.chips import parse_target
from hloscope.errors import Unavailable
from hloscope.ir import InputLeaf, Signature, parse_text
from hloscope.ir.proto import read_proto
from hloscope.ir.signature import Role
from hloscope.passes.batch_fit import BatchFit
from hloscope.passes.buffer_kinds import BufferKind, BufferKinds, Phase, phase_of
from hloscope.passes.heap_block import HeapBlock
from hloscope.passes.live_ranges import LiveRanges
from hloscope.passes.memory_spaces import Space
from hloscope.passes.memory_use import LIVE_RANGES, MemoryUse
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.findings import Basis

KIB = 1024


def compiled(function, *shapes, **options):
    jax = pytest.importorskip("jax")
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    return jax.jit(function, **options).lower(*arguments).compile()


def test_a_step_is_what_memory_analysis_says_it_is(session_of):
    jax = pytest.importorskip("jax")

    def loss(w, x):
        for _ in range(4):
            x = jax.numpy.tanh(x @ w)
        return (x * x).sum()

    def step(w, x):
        return w - 0.1 * jax.grad(loss)(w, x)

    executable = compiled(step, (256, 256), (1024, 256), donate_argnums=0)
    use = session_of(executable.as_text()).get(MemoryUse)
    memory = executable.memory_analysis()
    assert use.arguments == memory.argument_size_in_bytes
    assert use.aliased == memory.alias_size_in_bytes == 4 * 256 * 256
    assert use.outputs == memory.output_size_in_bytes - memory.alias_size_in_bytes
    assert use.temporaries[Space.DEVICE] == pytest.approx(memory.temp_size_in_bytes, rel=0.01)
    assert (use.basis, use.model) == (Basis.MODELLED, LIVE_RANGES)
    # Four activations of 1 MiB, one of which the last product need not keep apart.
    assert use.of_kind(BufferKind.RESIDUAL) >= 3 << 20


def test_a_loop_is_what_memory_analysis_says_it_is(session_of):
    jax = pytest.importorskip("jax")

    def step(w, x):
        def layer(h, _):
            return jax.numpy.tanh(h @ w), h

        last, kept = jax.lax.scan(layer, x, None, length=8)
        return last.sum() + (kept * kept).sum()

    executable = compiled(jax.grad(step), (128, 128), (512, 128))
    session = session_of(executable.as_text())
    memory = executable.memory_analysis()
    # Newer compilers overlay an array of the body on a carried one between its uses.
    assert session.get(HeapBlock).size == pytest.approx(memory.temp_size_in_bytes, rel=0.0005)
    # Eight steps' activations are stacked for the backward loop.
    assert session.get(Residuals).total >= 8 * 4 * 512 * 128


def test_a_buffer_assignment_is_the_truth_and_live_ranges_agree_with_it(tmp_path, session_of):
    jax = pytest.importorskip("jax")

    def step(state, batch):
        hidden = jax.numpy.tanh(batch @ state)
        return state - hidden.T @ hidden, hidden.sum()

    shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 64), (512, 64))]
    executable = (
        jax.jit(step, donate_argnums=0)
        .lower(*shapes)
        .compile({"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_proto": True})
    )
    (path,) = tmp_path.glob("*after_optimizations.hlo.pb")
    session = session_of(read_proto(path.read_bytes(), file=path.name))
    use, memory = session.get(MemoryUse), executable.memory_analysis()
    assert (use.basis, use.model) == (Basis.EXACT, None)
    assert use.temporaries[Space.DEVICE] == memory.temp_size_in_bytes
    assert use.arguments == memory.argument_size_in_bytes
    assert use.outputs == memory.output_size_in_bytes - memory.alias_size_in_bytes
    predicted = session.get(LiveRanges).temporaries()
    assert predicted == pytest.approx(memory.temp_size_in_bytes, rel=0.01)
    # The hidden layer is the largest thing that lives at the peak.
    largest = next(held for held in use.alive if held.kind is not BufferKind.PARAMETER)
    assert largest.size == 4 * 512 * 64


@pytest.mark.parametrize(
    ("op_name", "phase"),
    [
        ("jit(f)/jvp(layer_0)/mlp/dot_general", Phase.FORWARD),
        ("jit(f)/transpose(jvp(layer_0))/mlp/dot_general", Phase.BACKWARD),
        ("jit(f)/transpose(jvp())/checkpoint/rematted_computation/sin", Phase.BACKWARD),
        ("jit(f)/jvp()/exp;jit(f)/transpose(jvp())/mul", Phase.FORWARD),
        ("jit(f)/adam/mul", Phase.OTHER),
        ("", Phase.OTHER),
    ],
)
def test_the_pass_is_read_from_the_scope(op_name, phase):
    assert phase_of(op_name) is phase


STEP = """
HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  w = f32[256] parameter(0), metadata={op_name="state['w']"}
  x = f32[16,256] parameter(1), metadata={op_name="batch"}
  h = f32[16,256] negate(x), metadata={op_name="jit(f)/jvp(mlp)/neg"}
  k = (f32[16,256], u8[4096]) custom-call(h), custom_call_target="k",
    metadata={op_name="jit(f)/jvp(mlp)/k"}
  y = f32[16,256] get-tuple-element(k), index=0
  b = f32[16,256] custom-call(h, y), custom_call_target="b",
    metadata={op_name="jit(f)/transpose(jvp(mlp))/mul"}
  g = f32[256] slice(b), slice={[0:1], [0:256]}, metadata={op_name="jit(f)/transpose(jvp(mlp))/sum"}
  ROOT n = f32[256] add(w, g), metadata={op_name="jit(f)/sgd/add"}
}
"""


def test_buffers_are_told_apart_by_what_they_are_for(session_of):
    session = session_of(STEP)
    kinds = {
        buffer.instruction.name: held.kind
        for held in session.get(MemoryUse).alive
        if (buffer := held.buffer) is not None
    }
    # At the peak, under b: h and y are read backward, b is of the backward pass.
    assert kinds["w"] is kinds["x"] is BufferKind.PARAMETER
    assert kinds["h"] is BufferKind.RESIDUAL
    assert kinds["b"] is BufferKind.TEMPORARY
    assert session.get(MemoryUse).temporaries[Space.DEVICE] == 3 * 16 * KIB
    residuals = session.get(Residuals)
    assert [r.origin.name for r in residuals.residuals] == ["h", "k"]
    assert residuals.total == residuals.at_peak == 2 * 16 * KIB


def test_a_gradient_and_a_workspace_are_found_where_they_live(session_of):
    ranges = session_of(STEP).get(LiveRanges)
    entry = ranges.entry.computation
    kinds = BufferKinds()
    under_k = {(kinds[b], b.size) for b in ranges.alive(at=entry["k"].index)}
    assert (BufferKind.WORKSPACE, 4096) in under_k
    under_n = {(kinds[b], b.size) for b in ranges.alive(at=entry["n"].index)}
    assert under_n == {(BufferKind.GRADIENT, KIB)}


def test_the_batch_that_fits_is_a_line_through_what_grows(session_of):
    leaves = (
        InputLeaf("state['w']", Role.STATE, "f32", (256,), True, 0),
        InputLeaf("batch", Role.BATCH, "f32", (16, 256), False, 1),
    )
    chip = parse_target("h100").chip
    session = session_of(STEP, Signature(leaves, (), "captured"), chip)
    fit = session.get(BatchFit)
    # The state stays; the batch and three temporaries of its size grow.
    assert (fit.batch, fit.fixed, fit.growing) == (16, KIB, 4 * 16 * KIB)
    assert fit.largest == (chip.memory_bytes - KIB) * 16 // (64 * KIB)


def test_a_step_without_a_batch_has_no_batch_that_fits(session_of):
    leaves = (InputLeaf("w", Role.STATE, "f32", (256,), True, 0),)
    session = session_of(STEP, Signature(leaves, (), "captured"), parse_target("h100").chip)
    with pytest.raises(Unavailable, match="batch"):
        session.get(BatchFit)


def test_a_module_of_many_instructions_is_laid_out_whole(session_of):
    chain = "\n".join(f"x{k + 1} = f32[256] negate(x{k})" for k in range(20_000))
    text = (
        f"HloModule m, is_scheduled=true\nENTRY e {{\nx0 = f32[256] parameter(0)\n{chain}\n"
        "ROOT r = f32[1] slice(x20000), slice={[0:1]}\n}"
    )
    use = session_of(parse_text(text)).get(MemoryUse)
    # Each overwrites the one before.
    assert use.temporaries[Space.DEVICE] == KIB
