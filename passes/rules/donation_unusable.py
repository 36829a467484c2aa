"""HS702."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.errors import Unavailable
from hloscope.ir.signature import Role
from hloscope.passes.aliasing import Aliasing, LeafAliasing, Reason
from hloscope.passes.finding_sites import site_of
from hloscope.passes.pytree_paths import root_of
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Unit
from hloscope.pipeline.rules import rule

__all__ = ["donation_unusable"]

_SHOWN_LEAVES = 5


@rule("HS702", "donation-unusable", Category.SHARDING)
def donation_unusable(aliasing: Aliasing) -> Iterator[Finding]:
    """Finds arguments that were donated although no result could take their buffer.

    What it does:
        Goes through every donated leaf, whatever argument it belongs to, and
        lists those that no result lives in: jit dropped the leaf, no result has
        its shape and dtype, every such result lives in another buffer, or XLA
        joined none. JAX warns of some of these once, while lowering, and over
        several devices it does not warn at all. A leaf of the state whose new
        value is known by its path is HS701's, which says what differs.

    Why it costs:
        A donated array is gone after the call: reading it again is an error.
        Here that price is paid for nothing, as old and new value still have
        memory each. XLA may at best use the buffer for temporaries.

    Example:
            @functools.partial(jax.jit, donate_argnums=0)
            def loss_of(logits, labels):       # no result is as large as the logits
                return cross_entropy(logits, labels).mean()

    Use instead:
        Donate only what comes back in the same shape and dtype:

            @jax.jit
            def loss_of(logits, labels):
                return cross_entropy(logits, labels).mean()
    """
    if all(leaf.leaf.donated is None for leaf in aliasing.leaves):
        raise Unavailable("the dump does not tell whether an argument was donated")
    groups: dict[tuple[str, Reason], list[LeafAliasing]] = {}
    for leaf in aliasing.leaves:
        if leaf.leaf.donated and not leaf.aliased and leaf.reason is not None:
            if leaf.reason is Reason.FORWARDED or _belongs_to_hs701(leaf, aliasing):
                continue
            groups.setdefault((root_of(leaf.leaf.path), leaf.reason), []).append(leaf)
    for (root, reason), leaves in groups.items():
        yield _finding(root, reason, leaves)


def _belongs_to_hs701(leaf: LeafAliasing, aliasing: Aliasing) -> bool:
    by_path = leaf.partner is not None and aliasing.basis == "captured"
    return leaf.leaf.role is Role.STATE and by_path and leaf.reason is not Reason.TAKEN


def _finding(root: str, reason: Reason, leaves: Sequence[LeafAliasing]) -> Finding:
    ordered = sorted(leaves, key=lambda leaf: (-leaf.bytes, leaf.leaf.path))
    size = Quantity("bytes", sum(leaf.bytes for leaf in ordered), Unit.BYTES)
    many = f"{len(ordered)} leaves of {root} were" if len(ordered) > 1 else f"{root} was"
    listed = [f"{leaf.leaf.path}: {leaf.detail}" for leaf in ordered[:_SHOWN_LEAVES]]
    if len(ordered) > _SHOWN_LEAVES:
        listed.append(f"and {len(ordered) - _SHOWN_LEAVES} more")
    return Finding(
        code="HS702",
        name="donation-unusable",
        category=Category.SHARDING,
        severity=Severity.NOTE if reason is Reason.DROPPED else Severity.WARNING,
        message=f"{many} donated, but no result could use it: {reason.value}",
        site=site_of(ordered[0]),
        evidence=(Quantity("leaves", len(ordered)), size),
        cost=size,
        fix=_fix(root, reason),
        notes=tuple(listed),
    )


def _fix(root: str, reason: Reason) -> str:
    if reason is Reason.DROPPED:
        return f"Do not pass what {root} holds unread, or do not donate it."
    if reason is Reason.DTYPE_DIFFERS:
        return "Cast the result back to the dtype that the argument came in as."
    if reason is Reason.SHARDING_DIFFERS or reason is Reason.DONOR_LEFT:
        return "Give the result the argument's sharding: jax.jit(step, out_shardings=...)."
    return f"Do not donate {root}, or return a result of its shape, dtype and sharding."
