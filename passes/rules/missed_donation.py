"""HS704."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.ir.signature import Role
from hloscope.passes.missed_donations import MissedDonation, MissedDonations
from hloscope.pipeline.config import Configuration
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.pytree_paths import root_of
from hloscope.pipeline.rules import Limits, rule

__all__ = ["missed_donation"]

_WARNING_SHARE = 0.05
_SHOWN = 5


@rule("HS704", "missed-donation", Category.SHARDING)
def missed_donation(
    missed: MissedDonations, limits: Limits, config: Configuration
) -> Iterator[Finding]:
    """Finds large results that could have had the buffer of an argument that was not donated.

    What it does:
        Pairs each result that has memory of its own with an argument of the
        same shape, dtype, sharding and layout that was not donated: first the
        one that it is the new value of, by its path, then any other. Pairs
        below ``donation_bytes`` are left out, and so are frozen arguments,
        random keys, and the training state, which HS701 speaks for. Whether the
        caller still needs the argument afterwards, the program cannot tell.

    Why it costs:
        Argument and result exist side by side during the step, and after it for
        as long as the caller keeps the old one.

    Example:
            @jax.jit
            def decode(cache, token):                   # cache: [layers, batch, length, ...]
                cache = cache.at[:, :, position].set(...)
                return cache, logits

    Use instead:
            @functools.partial(jax.jit, donate_argnames="cache")
            def decode(cache, token):
                ...

            cache, logits = decode(cache, token)        # the old one is not used again
    """
    groups: dict[tuple[str, bool, str], list[MissedDonation]] = {}
    for one in missed.missed:
        if one.leaf.leaf.role is not Role.STATE:
            path = one.leaf.path
            key = (root_of(path), one.updated, config.entry_for("HS704", path))
            groups.setdefault(key, []).append(one)
    for (root, updated, _), pairs in groups.items():
        total = sum(pair.bytes for pair in pairs)
        if total >= limits.donation_bytes:
            yield _finding(root, pairs, total, missed.entry_bytes, updated=updated)


def _finding(
    root: str, pairs: list[MissedDonation], total: int, entry_bytes: int, *, updated: bool
) -> Finding:
    share = total / entry_bytes if entry_bytes else 0.0
    cost = Quantity("bytes that could be shared", total, Unit.BYTES)
    many = f"{len(pairs)} results" if len(pairs) > 1 else "a result"
    which = "its new value" if len(pairs) == 1 else "their new values"
    message = f"{root} is not donated, and {many} could live in its buffers"
    if updated:
        message = f"{root} is not donated, although the step returns {which}"
    listed = [
        f"{pair.output.path or 'the result'} could take {pair.leaf.leaf.path}"
        for pair in pairs[:_SHOWN]
    ]
    if len(pairs) > _SHOWN:
        listed.append(f"and {len(pairs) - _SHOWN} more")
    return Finding(
        code="HS704",
        name="missed-donation",
        category=Category.SHARDING,
        severity=Severity.WARNING if updated and share >= _WARNING_SHARE else Severity.NOTE,
        message=message,
        site=Site(leaf=pairs[0].leaf.leaf.path),
        evidence=(
            Quantity("results", len(pairs)),
            cost,
            Quantity("share of arguments and results", share, Unit.SHARE),
        ),
        cost=cost,
        fix=f"If the caller does not use {root} after the step, donate it: jax.jit(step, "
        + (f"donate_argnames={root!r})." if root.isidentifier() else "donate_argnums=...)."),
        notes=tuple(listed),
    )
