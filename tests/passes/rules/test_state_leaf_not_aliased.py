import warnings
from pathlib import Path

import pytest

from hloscope.errors import Unavailable
from hloscope.ir import Module
from hloscope.ir.signature import InputLeaf, OutputLeaf, Role, Signature
from hloscope.passes.aliasing import Reason
from hloscope.pipeline.findings import Basis, Severity
from hloscope.pipeline.session import Session
from hloscope.subjects import ModuleSubject

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


def test_a_leaf_of_an_nnx_jit_step_is_matched_with_its_own_new_value(found_in):
    code = """
    import optax
    from flax import nnx

    class Two(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(64, 96, rngs=rngs)
            self.last = nnx.Linear(96, 32, param_dtype=jnp.bfloat16, rngs=rngs)

    def make():
        model = Two(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit(donate_argnums=(0, 1))
    def train(model, optimizer, x):
        grads = nnx.grad(lambda m: (m.last(m.first(x)) ** 2).mean())(model)
        optimizer.update(model, grads)
        model.last.kernel.value = model.last.kernel.value.astype(jnp.float32)

    step = Step(train, (*nnx.eval_shape(make), shape(8, 64)))
    """
    (finding,) = found_in("HS701", code)
    assert finding.message == "model.last.kernel is not aliased to a result: dtype differs"
    assert finding.notes[0].startswith(
        "model.last.kernel: goes in as bf16, [0][0].last.kernel is f32 ("
    )


# One leaf for each reason, over eight devices. No two arrays take as many bytes on one device,
# tiles filled up: XLA would give one the buffer of the other.
EVERY_REASON = """
from jax.experimental.layout import Format, Layout

def step(devices):
    mesh = Mesh(np.array(devices), ("x",))
    rows = NamedSharding(mesh, P("x"))
    host = NamedSharding(mesh, P("x"), memory_kind="pinned_host")

    def update(state, opt_state, batch):
        g = batch.sum() + state["gone"].sum()
        new = {
            "fine": state["fine"] * 0.9 + g,
            "mu": state["mu"].astype(jnp.float32) * 0.9 + g,
            "cache": jnp.concatenate([state["cache"], state["cache"][:64]]),
            "spread": state["spread"] * 0.9 + g,
            "parked": jax.device_put(state["parked"] * 0.9 + g, host),
            "laid": state["laid"] * 0.9 + g,
            "fresh": jnp.full((512, 128), batch[0, 0]),
            "step": (state["step"] + 1).astype(jnp.float16),
        }
        return new, {"w": opt_state["w"] - g}

    def rowed(*sizes, dtype="float32"):
        return shape(*sizes, dtype=dtype, sharding=rows)

    state = {
        "fine": rowed(512, 512),
        "mu": rowed(1024, 384, dtype="bfloat16"),
        "cache": rowed(1024, 128),
        "spread": rowed(1024, 640),
        "parked": rowed(1024, 768),
        "laid": shape(512, 1024, sharding=Format(Layout((1, 0)), rows)),
        "fresh": rowed(512, 128),
        "gone": rowed(1024, 1280),
        "stale": rowed(512, 160),
        "step": shape(dtype="int32", sharding=NamedSharding(mesh, P())),
    }
    given = {name: rows for name in state if name not in ("gone", "stale")}
    given |= {"spread": NamedSharding(mesh, P()), "parked": host, "step": None}
    opt_state = {"w": rowed(512, 640)}
    return Step(
        update,
        (state, opt_state, rowed(64, 64)),
        donate=(0,),
        out_shardings=(given, {"w": rows}),
    )
"""


def reasons_in(session):
    from hloscope.passes.aliasing import Aliasing

    leaves = session.get(Aliasing).leaves
    return {one.path.partition("['")[2].rstrip("']"): one for one in leaves if "[" in one.path}


@pytest.mark.parametrize("target", ["cpu:8", "h100:8", "v5e:2x4"])
def test_each_reason_is_found_in_one_real_step_over_eight_devices(captured, told, tmp_path, target):
    code = EVERY_REASON
    if target == "v5e:2x4":  # its compiler fails on a host result beside so much else
        code = code.replace('memory_kind="pinned_host"', 'memory_kind="device"')
    session = captured(code, target)
    found = reasons_in(session)
    expected = {
        "mu": Reason.DTYPE_DIFFERS,
        "cache": Reason.SHAPE_DIFFERS,
        "spread": Reason.SHARDING_DIFFERS,
        "fresh": Reason.REPLACED,
        "gone": Reason.NO_MATCHING_OUTPUT,
        "stale": Reason.DROPPED,
        "step": Reason.DTYPE_DIFFERS,
        "w": Reason.NOT_DONATED,
        "fine": None,
    }
    if target == "cpu:8":  # JAX knows no memories of a GPU that is not there
        expected["parked"] = Reason.MEMORY_SPACE_DIFFERS
    if target == "v5e:2x4":
        expected["laid"] = Reason.LAYOUT_DIFFERS  # elsewhere both layouts take the same bytes
        del expected["step"]  # any scalar fills a whole tile, so it takes another's place
    assert {name: found[name].reason for name in expected} == expected
    assert found["fine"].aliased

    convert = found["mu"].site.location
    source = (tmp_path / convert.file).read_text().splitlines()
    assert '"mu": state["mu"].astype(jnp.float32)' in source[convert.line - 1]
    assert ".astype(jnp.bfloat16)" in found["mu"].fix
    assert found["spread"].detail == "goes in as P('x',), [0]['spread'] is P()"
    assert found["w"].fix == (
        "Donate opt_state: jax.jit(step, donate_argnames=('state', 'opt_state'))."
    )
    assert "keep_unused=True" in found["fresh"].fix

    findings = told("HS701", session)
    assert told("HS702", session) == ()
    by_leaf = {finding.site.leaf: finding for finding in findings}
    if "step" in expected:
        assert by_leaf["state['step']"].severity is Severity.NOTE  # four bytes
    assert by_leaf["state['stale']"].severity is Severity.NOTE
    assert by_leaf["state['mu']"].message == (
        "state['mu'] is not aliased to a result: dtype differs"
    )
    # A dropped array's part on one device is not known.
    assert by_leaf["state['stale']"].cost.basis is Basis.BOUNDED

    # The bare module says the same or less, and nothing else.
    bare = reasons_in(Session(ModuleSubject(session.get(Module), "dump")))
    assert bare.keys() == found.keys() - {"fresh", "stale"}
    for name, one in bare.items():
        assert one.aliased == found[name].aliased
        assert one.reason in (found[name].reason, Reason.NO_MATCHING_OUTPUT)


HOST = """
def step(devices):
    mesh = Mesh(np.array(devices), ("x",))
    host, device = (NamedSharding(mesh, P(), memory_kind=k) for k in ("pinned_host", "device"))

    def update(state, x):
        return {"w": jax.device_put(state["w"], device) * 0.9 + x.sum()}

    return Step(update, ({"w": shape(512, 512, sharding=host)}, shape(64, 64)), donate=(0,))
"""


@pytest.mark.parametrize("target", ["cpu", "v5e"])
def test_an_alias_between_two_memories_is_none(captured, told, target):
    # JAX pairs the two without out_shardings, and the CPU's runtime then refuses the result.
    session = captured(HOST, target)
    assert len(session.get(Module).input_output_alias) == 1
    for dump in (False, True):
        (finding,) = told("HS701", session, dump=dump)
        assert finding.message == "state['w'] is not aliased to a result: memory space differs"
        assert "S(5)" in finding.notes[0]
        assert "running that fails" in finding.notes[0]
    assert "memory_kind='pinned_host'" in told("HS701", session)[0].fix


def test_an_entry_of_ignore_silences_the_leaves_that_it_names_and_no_others(session_of):
    from hloscope.pipeline.audit import run_rule
    from hloscope.pipeline.config import Configuration, Suppression
    from hloscope.pipeline.rules import RULES

    def run(*places):
        entries = tuple(Suppression(f"HS701:{p}", "HS701", p) for p in places)
        outcome = run_rule(
            session_of(TEXT, SIGNATURE), RULES["HS701"], Configuration(ignore=entries)
        )
        assert outcome.failure is None
        return [
            [finding.evidence[0].value for finding in found]
            for found in (outcome.findings, [one.finding for one in outcome.suppressed])
        ]

    assert run() == [[2], []]
    assert run("nu") == [[1], [1]]
    assert run("state['mu']") == [[1], [1]]
    assert run("state") == [[], [2]]
    assert run("params") == [[2], []]
