import warnings
from pathlib import Path

import pytest

from hloscope.errors import Unavailable
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.pipeline.findings import Severity

TEXT = """
HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  w = f32[8] parameter(0)
  mu = bf16[8] parameter(1)
  nu = bf16[8] parameter(2)
  x = f32[8] parameter(3)
  a = f32[8] add(w, x)
  b = f32[8] convert(mu)
  c = f32[8] convert(nu)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(a, b, c)
}
"""


def leaf(path, parameter, dtype, role=Role.STATE, donated=True):
    return InputLeaf(path, role, dtype, (8,), donated, parameter)


SIGNATURE = Signature(
    (
        leaf("state['w']", 0, "f32"),
        leaf("state['mu']", 1, "bf16"),
        leaf("state['nu']", 2, "bf16"),
        leaf("x", 3, "f32", Role.BATCH, donated=False),
    ),
    tuple(OutputLeaf(f"['{n}']", "f32", (8,), k) for k, n in enumerate(["w", "mu", "nu"])),
)


def test_leaves_with_one_reason_are_one_finding_with_the_reason(findings_of):
    (finding,) = findings_of("HS701", TEXT, SIGNATURE)
    assert finding.message == "2 state leaves of state are not aliased to a result: dtype differs"
    assert finding.site.leaf == "state['mu']"
    leaves, held, share = finding.evidence
    assert (leaves.value, held.value) == (2, 2 * 8 * 2)
    assert share.value == 32 / (32 + 32)
    assert finding.severity is Severity.ERROR
    assert finding.notes[0] == "state['mu']: goes in as bf16, ['mu'] is f32 (b)"
    assert (finding.site.computation, finding.site.instruction) == ("e", "b")
    assert "Cast" in finding.fix


def test_a_batch_that_is_not_aliased_is_nobodys_business(findings_of):
    batch = leaf("x", 3, "f32", Role.BATCH, donated=False)
    kept = Signature((leaf("state['w']", 0, "f32"), batch), SIGNATURE.outputs)
    assert findings_of("HS701", TEXT, kept) == ()


def test_a_step_without_state_is_not_checked_rather_than_clean(findings_of):
    batch = leaf("x", 3, "f32", Role.BATCH, donated=False)
    with pytest.raises(Unavailable, match="declared as training state"):
        findings_of("HS701", TEXT, Signature((batch,), SIGNATURE.outputs))


def test_a_dropped_leaf_is_a_note(findings_of):
    dropped = Signature(
        (leaf("state['w']", 0, "f32"), leaf("state['gone']", None, "f32")), SIGNATURE.outputs
    )
    (finding,) = findings_of("HS701", TEXT, dropped)
    assert (finding.severity, finding.site.leaf) == (Severity.NOTE, "state['gone']")


def test_many_leaves_are_cut_short_but_counted(findings_of):
    names = [f"k{n}" for n in range(9)]
    many = Signature(
        tuple(leaf(f"state['{n}']", 1, "bf16", donated=False) for n in names),
        SIGNATURE.outputs,
    )
    (finding,) = findings_of("HS701", TEXT, many)
    assert finding.evidence[0].value == 9
    assert finding.notes[-1] == "and 4 more"
    assert "donate_argnames='state'" in finding.fix


def test_a_dump_without_names_is_not_checked(findings_of):
    with pytest.raises(Unavailable, match="does not name its arguments"):
        findings_of("HS701", TEXT)


def test_a_dump_whose_names_tell_nothing_is_not_checked(findings_of):
    text = TEXT.replace(", input_output_alias={ {0}: (0, {}, may-alias) }", "").replace(
        "parameter(3)", 'parameter(3), metadata={op_name="x"}'
    )
    with pytest.raises(Unavailable, match="training state"):
        findings_of("HS701", text)


def train(donate, cast_back=True):
    """A step with a bfloat16 moment, compiled for the CPU."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def step(state, x):
        gradient = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(state["w"])
        moment = 0.9 * state["mu"].astype(jnp.float32) + gradient
        new = {"w": state["w"] - 0.1 * moment}
        new["mu"] = moment.astype(jnp.bfloat16) if cast_back else moment
        return new

    state = {
        "w": jax.ShapeDtypeStruct((64, 64), "float32"),
        "mu": jax.ShapeDtypeStruct((64, 64), "bfloat16"),
    }
    x = jax.ShapeDtypeStruct((8, 64), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions warn of the donation that fails
        jitted = jax.jit(step, donate_argnums=(0,) if donate else ())
        return jitted.lower(state, x).compile().as_text()


def test_a_real_step_that_donates_its_state_is_clean(findings_of):
    assert findings_of("HS701", train(donate=True)) == ()


def test_a_real_step_that_donates_nothing_is_found_even_from_its_dump(findings_of):
    (finding,) = findings_of("HS701", train(donate=False))
    assert finding.message == "2 state leaves of state are not aliased to a result: not donated"


def test_a_real_moment_that_comes_back_wider_is_found_even_from_its_dump(findings_of):
    (finding,) = findings_of("HS701", train(donate=True, cast_back=False))
    assert finding.site.leaf == "state['mu']"
    assert "dtype differs" in finding.message
    (note,) = finding.notes
    assert note.startswith("state['mu']: goes in as bf16, result 1 is f32 (")
    source = Path(__file__).read_text().splitlines()
    assert Path(finding.site.file).name == Path(__file__).name
    assert ".astype(jnp.float32)" in source[finding.site.line - 1]


# A state over eight devices. What a constraint inside the step lays out anew, and no
# out_shardings asks back for, comes back in another sharding than it went in.
SHARDED = """
def step(devices):
    mesh = Mesh(np.array(devices), ("x",))
    rows = NamedSharding(mesh, P("x"))

    def update(state, x):
        new = state["w"] * 0.9 + x
        return {{"w": jax.lax.with_sharding_constraint(new, NamedSharding(mesh, P()))}}

    w = shape(512, 512, sharding=rows)
    return Step(update, ({{"w": w}}, w), donate=(0,), out_shardings={given})
"""


def test_a_donation_that_fails_without_out_shardings_shows_both_shardings(found_in):
    (finding,) = found_in("HS701", SHARDED.format(given="None"), "cpu:8")
    assert "sharding differs" in finding.message
    (note,) = finding.notes
    assert "('x',)" in note
    assert "out_shardings" in finding.fix
    assert finding.cost.value == 512 * 512 * 4 // 8  # one device's part


def test_the_same_step_with_out_shardings_is_clean(found_in):
    assert found_in("HS701", SHARDED.format(given='{"w": rows}'), "cpu:8") == ()


def test_an_optax_chain_with_named_tuples_is_clean_when_donated(found_in):
    code = """
    import optax

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    params = {"w": shape(64, 64), "b": shape(64)}

    def update(params, opt_state, x):
        grads = jax.grad(lambda p: ((x @ p["w"] + p["b"]) ** 2).mean())(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    state = jax.eval_shape(optimizer.init, params)
    step = Step(update, (params, state, shape(8, 64)), donate=(0, 1))
    """
    assert found_in("HS701", code) == ()


def test_a_bfloat16_moment_that_is_updated_in_float32_points_at_the_convert(found_in):
    code = """
    def update(state, g):
        mu = 0.9 * state["mu"].astype(jnp.float32) + g
        return {"mu": mu, "w": state["w"] - 0.1 * mu}

    state = {"mu": shape(256, 256, dtype="bfloat16"), "w": shape(256, 256)}
    step = Step(update, (state, shape(256, 256)), donate=(0,))
    """
    (finding,) = found_in("HS701", code)
    assert finding.site.leaf == "state['mu']"
    assert finding.site.file.endswith("train.py")
    assert "convert" in finding.site.op_name
    assert "dtype differs" in finding.message


def test_a_nested_nnx_state_is_clean_when_donated_and_found_by_path_when_not(found_in):
    code = """
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.inner = nnx.Linear(64, 64, rngs=rngs)

    graph, state = nnx.split(nnx.eval_shape(lambda: Block(nnx.Rngs(0))))

    def update(state, x):
        def loss(state):
            return (nnx.merge(graph, state).inner(x) ** 2).mean()
        return jax.tree.map(lambda p, g: p - 0.1 * g, state, jax.grad(loss)(state))

    step = Step(update, (state, shape(8, 64)), donate={donate})
    """
    assert found_in("HS701", code.replace("{donate}", "(0,)")) == ()
    (finding,) = found_in("HS701", code.replace("{donate}", "()"))
    assert finding.evidence[0].value == 2  # kernel and bias
    assert finding.evidence[1].value == (64 * 64 + 64) * 4
    assert "inner" in finding.site.leaf
