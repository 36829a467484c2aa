"""HS702."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope.errors import Unavailable
from hloscope.ir.signature import Role
from hloscope.passes.aliasing import Aliasing, LeafAliasing, Reason
from hloscope.passes.finding_sites import site_of
from hloscope.pipeline.config import Configuration
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity
from hloscope.pipeline.pytree_paths import root_of
from hloscope.pipeline.rules import rule

__all__ = ["donation_unusable"]

_SHOWN_LEAVES = 5
# There is a result that could take the buffer if it came back as the argument went in.
_ABOUT_THE_RESULT = (
    Reason.DTYPE_DIFFERS,
    Reason.SHAPE_DIFFERS,
    Reason.SHARDING_DIFFERS,
    Reason.LAYOUT_DIFFERS,
    Reason.MEMORY_SPACE_DIFFERS,
    Reason.DONOR_LEFT,
)


@rule("HS702", "donation-unusable", Category.SHARDING)
def donation_unusable(aliasing: Aliasing, config: Configuration) -> Iterator[Finding]:
    """Finds arguments that were donated although no result could take their buffer.

    What it does:
        Goes through every donated leaf that is no training state (HS701 speaks
        for that) and lists those that no result lives in: jit dropped the leaf,
        no result has its shape and dtype, every such result lives in another
        buffer, or XLA joined none. JAX warns of some of these once, while
        lowering, and over several devices it does not warn at all.

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
    groups: dict[tuple[str, Reason, str], list[LeafAliasing]] = {}
    for leaf in aliasing.leaves:
        if (
            leaf.leaf.donated
            and leaf.leaf.role is not Role.STATE
            and leaf.reason not in (None, Reason.FORWARDED)
        ):
            key = (root_of(leaf.path), leaf.reason, config.entry_for("HS702", leaf.path))
            groups.setdefault(key, []).append(leaf)
    for (root, reason, _), leaves in groups.items():
        yield _finding(root, reason, leaves, aliasing)


def _finding(
    root: str, reason: Reason, leaves: Sequence[LeafAliasing], aliasing: Aliasing
) -> Finding:
    ordered = sorted(leaves, key=lambda leaf: (-leaf.bytes, leaf.leaf.path))
    size = aliasing.size("bytes", ordered)
    first = ordered[0].path
    many = f"{len(ordered)} leaves of {root} were" if len(ordered) > 1 else f"{first} was"
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
        fix=_fix(root, reason, ordered[0].fix),
        notes=tuple(listed),
    )


def _fix(root: str, reason: Reason, of_reason: str) -> str:
    leave_out = f"Leave {root} out of what jax.jit is asked to donate"
    if reason in _ABOUT_THE_RESULT:
        return f"{of_reason} Or {leave_out[0].lower()}{leave_out[1:]}."
    return f"{leave_out}: it saves nothing, and the caller loses the array."
