import warnings

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
    assert finding.notes[0] == "state['mu']: goes in as bf16, ['mu'] is f32"
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
    assert finding.notes == ("state['mu']: no result is bf16[64,64]",)
