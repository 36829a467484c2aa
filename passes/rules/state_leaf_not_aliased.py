"""HS701."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.errors import Unavailable
from hloscope.passes.aliasing import Aliasing, LeafAliasing, Reason
from hloscope.passes.finding_sites import site_of
from hloscope.passes.inferred_signature import is_unnamed
from hloscope.pipeline.config import Configuration
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.pytree_paths import root_of
from hloscope.pipeline.rules import rule

__all__ = ["state_leaf_not_aliased"]

_ERROR_SHARE = 0.1
_SHOWN_LEAVES = 5


@rule("HS701", "state-leaf-not-aliased", Category.SHARDING)
def state_leaf_not_aliased(aliasing: Aliasing, config: Configuration) -> Iterator[Finding]:
    """Finds training state whose memory the step does not reuse, and says why.

    What it does:
        Goes through every leaf of the state and looks whether the executable
        lets a result take over its buffer. For those where it does not, the
        reason is found in the signature and the module: it was not donated;
        jit dropped it, as the step never reads it (and its new value, if there is
        one, gets other memory); no result has its shape and dtype; the result
        that it becomes has another dtype (the convert and its line are named),
        shape, sharding, layout or memory space; another leaf took that result; or
        it was donated over several devices without a known result, and XLA found
        none. Leaves with the same reason under one
        argument (and with the same line, where one is at fault) are one finding.
        A leaf that JAX hands through unchanged costs nothing and is not listed.
        Scalars alone, and leaves that are never read, are no more than a note.

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
    groups: dict[tuple[str, Reason, str, str], list[LeafAliasing]] = {}
    for leaf in aliasing.not_aliased:
        if leaf.reason is not None:
            path = leaf.leaf.path
            line = str(leaf.site.location or "") if leaf.site is not None else ""
            key = (root_of(path), leaf.reason, line, config.entry_for("HS701", path))
            groups.setdefault(key, []).append(leaf)
    for (root, reason, *_), leaves in groups.items():
        yield _finding(root, reason, leaves, aliasing)


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
    root: str, reason: Reason, leaves: Sequence[LeafAliasing], aliasing: Aliasing
) -> Finding:
    ordered = sorted(leaves, key=lambda leaf: (-leaf.bytes, leaf.leaf.path))
    first = ordered[0]
    total = sum(leaf.bytes for leaf in ordered)
    state_bytes = sum(leaf.bytes for leaf in aliasing.state)
    share = total / state_bytes if state_bytes else 0.0
    held = "for nothing" if reason is Reason.DROPPED else "twice"
    cost = aliasing.size(f"bytes held {held}", ordered)
    listed = [f"{leaf.leaf.path}: {leaf.detail}" for leaf in ordered[:_SHOWN_LEAVES]]
    if len(ordered) > _SHOWN_LEAVES:
        listed.append(f"and {len(ordered) - _SHOWN_LEAVES} more")
    what = f"{len(ordered)} state leaves of {root} are" if len(ordered) > 1 else f"{first.path} is"
    return Finding(
        code="HS701",
        name="state-leaf-not-aliased",
        category=Category.SHARDING,
        severity=_severity(reason, ordered, share),
        message=f"{what} not aliased to a result: {reason.value}",
        site=site_of(first),
        evidence=(
            Quantity("leaves", len(ordered)),
            cost,
            Quantity("share of the state's bytes", share, Unit.SHARE, cost.basis, cost.model),
        ),
        cost=cost,
        fix=first.fix,
        notes=tuple(listed),
    )


def _severity(reason: Reason, leaves: Sequence[LeafAliasing], share: float) -> Severity:
    """A note where nothing much is lost: an unused leaf, or counters alone."""
    if reason is Reason.DROPPED or all(not leaf.leaf.dimensions for leaf in leaves):
        return Severity.NOTE
    return Severity.ERROR if share >= _ERROR_SHARE else Severity.WARNING
