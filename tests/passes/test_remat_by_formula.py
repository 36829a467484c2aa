"""What policies keep and run again, against arithmetic on the sizes of a decoder.

A scan of post-norm decoder layers, so that the backward pass needs every product
of the forward pass: recomputing a layer in full is its whole forward pass. A TPU
multiplies in bfloat16 and pads to its tiles; for it the decoder is in bfloat16 and
its sizes fill the tiles, else its bytes follow from the padding. What it casts or
copies of the parameters before the loops crosses too, and is left out here: no
policy touches it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hloscope.passes.flops.ledger import FlopLedger
from hloscope.passes.remat import Remat
from hloscope.passes.remat_verdict import RematOutcome, RematVerdict
from hloscope.passes.residuals import Residuals
from hloscope.pipeline.session import Session

LAYERS, BATCH = 4, 2


@dataclass(frozen=True)
class Sizes:
    """A decoder's shapes, and what follows from them for all layers together."""

    length: int
    width: int
    hidden: int
    heads: int
    dtype: str

    @property
    def bytes(self) -> int:
        return 2 if self.dtype == "bfloat16" else 4

    @property
    def tokens(self) -> int:
        return LAYERS * BATCH * self.length

    @property
    def array(self) -> int:
        """Bytes of one activation of the model's width."""
        return self.tokens * self.width * self.bytes

    @property
    def scores(self) -> int:
        return self.tokens * self.heads * self.length * self.bytes

    @property
    def end(self) -> int:
        """The last layer's output, which the sum of squares keeps, once and not by layer."""
        return self.array // LAYERS

    @property
    def projection(self) -> int:
        return 2 * self.tokens * self.width**2

    @property
    def forward(self) -> int:
        mixing = 2 * self.tokens * self.length * self.width
        return 4 * self.projection + 2 * mixing + 2 * 2 * self.tokens * self.width * self.hidden

    def kept(self, policy: str) -> int:
        """The layer's input; what is named; the results of all eight products."""
        wide = self.array * self.hidden // self.width
        return {
            "full": self.array,
            "names": 2 * self.array,
            "dots": 7 * self.array + self.scores + wide,
        }[policy]

    def again(self, policy: str) -> int:
        return {"full": self.forward, "names": self.forward - self.projection, "dots": 0}[policy]

    def code(self) -> str:
        shapes = f"{LAYERS}, {BATCH}, {self.length}, {self.width}, {self.hidden}, {self.heads}"
        return DECODER.replace("SIZES", shapes).replace("DTYPE", self.dtype)


SIZES = {
    "cpu": Sizes(64, 128, 512, 4, "float32"),
    "h100": Sizes(64, 128, 512, 4, "float32"),
    "v5e": Sizes(128, 256, 1024, 2, "bfloat16"),
}
CASES = [
    *((policy, target) for target in ("cpu", "h100") for policy in ("full", "names", "dots")),
    *((policy, "v5e") for policy in ("full", "names")),
]

DECODER = """
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from hloscope import Step

L, B, S, W, F, H = SIZES

def layer(h, p):
    q, k, v = (jnp.einsum("bsw,whd->bshd", h, p[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k) / 8.0, axis=-1)
    mixed = jnp.einsum("bhst,bthd->bshd", scores, v)
    h = jnp.tanh(h + checkpoint_name(jnp.einsum("bshd,hdw->bsw", mixed, p["o"]), "attention"))
    return jnp.tanh(h + jnp.tanh(h @ p["up"]) @ p["down"]), None

def loss(layer):
    def of(params, x):
        h, _ = jax.lax.scan(layer, x, params)
        return (h ** 2).sum()
    return of

def shape(*sizes):
    return jax.ShapeDtypeStruct((L, *sizes), "DTYPE")

params = {name: shape(W, H, W // H) for name in "qkv"}
params |= {"o": shape(H, W // H, W), "up": shape(W, F), "down": shape(F, W)}
policies = jax.checkpoint_policies
wraps = {
    "none": layer,
    "full": jax.checkpoint(layer),
    "names": jax.checkpoint(layer, policy=policies.save_only_these_names("attention")),
    "dots": jax.checkpoint(layer, policy=policies.dots_saveable),
}
x = jax.ShapeDtypeStruct((B, S, W), "DTYPE")
none, full, names, dots = (Step(jax.grad(loss(wraps[key])), (params, x)) for key in wraps)
"""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory, need_target):
    """A session over the decoder with one policy, each compiled once."""
    import hloscope
    from hloscope.pipeline.loading import load_passes

    load_passes()
    folder = tmp_path_factory.mktemp("decoder")
    done: dict[tuple[str, str], Session] = {}

    def get(policy: str, target: str) -> Session:
        need_target(target)
        if (policy, target) not in done:
            file = folder / f"decoder_{SIZES[target].dtype}.py"
            file.write_text(SIZES[target].code())
            done[policy, target] = Session(hloscope.load(f"{file}:{policy}", target=target))
        return done[policy, target]

    return get


def activations(session: Session) -> int:
    """Bytes of the residuals that are not made of parameters alone."""
    residuals = session.get(Residuals).residuals
    return sum(residual.buffer.size for residual in residuals if not residual.is_argument)


@pytest.mark.parametrize(("policy", "target"), CASES)
def test_residuals_are_what_the_policy_keeps_of_each_layer(decoder, policy, target):
    sizes, kept = SIZES[target], activations(decoder(policy, target))
    assert kept == pytest.approx(sizes.kept(policy) + sizes.end, rel=0.05)
    # Without a policy all products are kept, and what is computed of them.
    assert activations(decoder("none", target)) > kept


@pytest.mark.parametrize(("policy", "target"), CASES)
def test_recomputation_is_the_forward_pass_without_what_is_kept(decoder, policy, target):
    session, again = decoder(policy, target), SIZES[target].again(policy)
    assert session.get(RematVerdict).again_flops == pytest.approx(again, rel=0.05)
    assert session.get(Remat).flops == pytest.approx(again, rel=0.05)
    # Forward, twice as much backward, and what runs again.
    total = session.get(FlopLedger).total.nominal
    assert total == pytest.approx(3 * SIZES[target].forward + again, rel=0.05)
    survived = RematOutcome.SURVIVED if again else RematOutcome.KEPT_ALL
    assert session.get(RematVerdict).outcome is survived


@pytest.mark.parametrize("target", SIZES)
def test_without_a_checkpoint_nothing_runs_again(decoder, target):
    session = decoder("none", target)
    total = session.get(FlopLedger).total.nominal
    assert total == pytest.approx(3 * SIZES[target].forward, rel=0.05)
    assert session.get(RematVerdict).outcome is RematOutcome.NONE


def test_a_tpu_also_hands_its_casts_of_the_parameters_on(decoder):
    residuals = decoder("none", "v5e").get(Residuals).residuals
    copies = [residual for residual in residuals if residual.is_argument]
    assert {residual.buffer.shape.dtype for residual in copies} == {"bf16"}
    names = {residual.made.argument.op_name for residual in copies}
    assert names <= {f"params['{name}']" for name in ("q", "k", "v", "o", "up", "down")}
