"""HS701."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.errors import Unavailable
from hloscope.passes.aliasing import Aliasing, LeafAliasing, Reason
from hloscope.passes.finding_sites import site_of
from hloscope.passes.inferred_signature import is_unnamed
from hloscope.passes.pytree_paths import root_of
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import rule

__all__ = ["state_leaf_not_aliased"]

_ERROR_SHARE = 0.1
_SHOWN_LEAVES = 5

_FIXES = {
    Reason.NOT_DONATED: "Donate the argument: jax.jit(step, donate_argnames={root!r}).",
    Reason.DROPPED: "Take the leaf out of the state, or use it; the step never reads it.",
    Reason.NO_MATCHING_OUTPUT: "Return the updated leaf from the step, or do not donate it.",
    Reason.DTYPE_DIFFERS: "Cast the updated leaf back to the dtype that it came in as.",
    Reason.SHAPE_DIFFERS: "Return the updated leaf in the shape that it came in as.",
    Reason.SHARDING_DIFFERS: (
        "Give the result the argument's sharding: jax.jit(step, out_shardings=...)."
    ),
    Reason.LAYOUT_DIFFERS: (
        "Give the argument and the result one layout: leave both to XLA, or set in_shardings "
        "and out_shardings to the same jax.experimental.layout.Format."
    ),
    Reason.MEMORY_SPACE_DIFFERS: (
        "Return the leaf in the memory kind that it came in (out_shardings with that memory_kind)."
    ),
    Reason.TAKEN: "Return one result for each donated leaf, or do not pass the same state twice.",
    Reason.DONOR_LEFT: (
        "Say what the results look like, so that JAX pairs them itself: "
        "jax.jit(step, out_shardings=...) with the state's own shardings."
    ),
    Reason.UNUSED: (
        "Compare layouts and memory kinds of the argument and the result; "
        "XLA joins them only if both are the same."
    ),
}


@rule("HS701", "state-leaf-not-aliased", Category.SHARDING)
def state_leaf_not_aliased(aliasing: Aliasing) -> Iterator[Finding]:
    """Finds training state whose memory the step does not reuse, and says why.

    What it does:
        Goes through every leaf of the state and looks whether the executable
        lets a result take over its buffer. For those where it does not, the
        reason is found in the signature and the module: it was not donated;
        jit dropped it, as the step never reads it; no result has its shape and
        dtype; the result that it becomes has another dtype (the convert and its
        line are named), shape, sharding, layout or memory space; another leaf
        took that result; or it was donated over several devices without a known
        result, and XLA found none. Leaves with the same reason under one
        argument are one finding. A leaf that JAX hands through unchanged costs
        nothing and is not listed.

    Why it costs:
        Old and new value live at the same time, so the leaf takes its bytes
        twice. For parameters with Adam's two moments that is three times the
        model's size on top of it, which is often the difference between a
        batch that fits and one that does not.

    Example:
            @jax.jit                                   # nothing donated
            def step(state, batch):
                loss, grads = jax.value_and_grad(loss_of)(state.params, batch)
                return state.apply_gradients(grads=grads), loss

        or donated, but returned in another dtype than it came in:

            new_mu = (0.9 * mu.astype(jnp.float32) + 0.1 * grads)     # mu was bfloat16

    Use instead:
            @functools.partial(jax.jit, donate_argnames="state")
            def step(state, batch):
                ...
                new_mu = (0.9 * mu.astype(jnp.float32) + 0.1 * grads).astype(mu.dtype)
    """
    _require_known_state(aliasing)
    state_bytes = sum(leaf.bytes for leaf in aliasing.state)
    groups: dict[tuple[str, Reason | None], list[LeafAliasing]] = {}
    for leaf in aliasing.not_aliased:
        groups.setdefault((root_of(leaf.leaf.path), leaf.reason), []).append(leaf)
    for (root, reason), leaves in groups.items():
        if reason is not None:
            yield _finding(root, reason, leaves, state_bytes)


def _require_known_state(aliasing: Aliasing) -> None:
    """Where no argument is known to be state, having found nothing means nothing.

    Raises:
        Unavailable: No argument is state, or the module is a dump that names none.
    """
    if aliasing.basis == "captured":
        if not aliasing.state:
            raise Unavailable(
                "no argument of the step is donated, named or declared as training state"
            )
        return
    if all(is_unnamed(leaf.leaf.path) for leaf in aliasing.leaves):
        raise Unavailable(
            "the dump does not name its arguments, so only aliased ones are known to be state"
        )
    if not aliasing.state:
        raise Unavailable("nothing in the dump tells which arguments are training state")


def _finding(
    root: str, reason: Reason, leaves: Sequence[LeafAliasing], state_bytes: int
) -> Finding:
    ordered = sorted(leaves, key=lambda leaf: (-leaf.bytes, leaf.leaf.path))
    first = ordered[0]
    total = sum(leaf.bytes for leaf in ordered)
    share = total / state_bytes if state_bytes else 0.0
    cost = Quantity("bytes held twice", total, Unit.BYTES)
    if reason is Reason.DROPPED:
        severity = Severity.NOTE
        cost = Quantity("bytes held for nothing", total, Unit.BYTES)
    else:
        severity = Severity.ERROR if share >= _ERROR_SHARE else Severity.WARNING
    many = f"{len(ordered)} state leaves of {root} are" if len(ordered) > 1 else "a state leaf is"
    listed = [f"{leaf.leaf.path}: {leaf.detail}" for leaf in ordered[:_SHOWN_LEAVES]]
    if len(ordered) > _SHOWN_LEAVES:
        listed.append(f"and {len(ordered) - _SHOWN_LEAVES} more")
    return Finding(
        code="HS701",
        name="state-leaf-not-aliased",
        category=Category.SHARDING,
        severity=severity,
        message=f"{many} not aliased to a result: {reason.value}",
        site=site_of(first),
        evidence=(
            Quantity("leaves", len(ordered)),
            cost,
            Quantity("share of the state's bytes", share, Unit.SHARE),
        ),
        cost=cost,
        fix=_FIXES[reason].format(root=root),
        notes=tuple(listed),
    )
