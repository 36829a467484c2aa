"""HS908."""

from __future__ import annotations

from collections.abc import Iterator

from hloscope.passes.remat_names import PolicyNames, RematNames
from hloscope.passes.remat_verdict import RematVerdict
from hloscope.pipeline.findings import Basis, Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.rules import Limits, rule

__all__ = ["unmatched_policy_name"]


@rule("HS908", "unmatched-policy-name", Category.MEMORY)
def unmatched_policy_name(
    names: RematNames, verdict: RematVerdict, limits: Limits
) -> Iterator[Finding]:
    """Finds names in a remat policy that no value of the step has.

    What it does:
        Compares the names that the policies of ``jax.checkpoint`` ask for with
        those that ``checkpoint_name`` gives to values anywhere in the step. At
        least a warning; more where nothing else is kept and much runs again.

    Why it costs:
        JAX says nothing of such a name. What it should keep is computed again,
        what it should offload is not, and what it should leave out is kept.

    Example:
            q = checkpoint_name(x @ wq, "query_proj")
            policy = jax.checkpoint_policies.save_only_these_names("q_proj")

    Use instead:
        One spelling for both:

            q = checkpoint_name(x @ wq, "query_proj")
            policy = jax.checkpoint_policies.save_only_these_names("query_proj")
    """
    again = Quantity(
        "FLOPs run again", verdict.again_flops, Unit.FLOPS, Basis.MODELLED, verdict.model
    )
    share = Quantity(
        "share of all products", verdict.share, Unit.SHARE, Basis.MODELLED, verdict.model
    )
    for each in names.policies:
        if not each.unmatched:
            continue
        severity = limits.severity(verdict.share) if each.keeps_nothing else Severity.WARNING
        yield Finding(
            code="HS908",
            name="unmatched-policy-name",
            category=Category.MEMORY,
            severity=Severity.WARNING if severity is Severity.NOTE else severity,
            message=_message(each),
            site=Site(),
            evidence=(
                Quantity("names that match nothing", len(each.unmatched)),
                Quantity("names that match", len(each.matched)),
                again,
                share,
            ),
            cost=again,
            fix=_fix(names, each),
            notes=(f"policy: {each.policy.words}", _known(names)),
        )


def _message(each: PolicyNames) -> str:
    told = ", ".join(map(repr, each.unmatched))
    text = f"no value of the step has the policy's name {told}"
    return f"{text}: it keeps nothing" if each.keeps_nothing else text


def _fix(names: RematNames, each: PolicyNames) -> str:
    pairs = [(name, names.nearest(name)) for name in each.unmatched]
    meant = [f"{near!r} for {name!r}" for name, near in pairs if near]
    if meant:
        return f"Write {', '.join(meant)}, or name the value so with checkpoint_name."
    return "Name the value so with checkpoint_name inside the checkpointed function."


def _known(names: RematNames) -> str:
    if not names.names:
        return "the step names no value"
    return f"names of the step: {', '.join(names.names)}"
