"""HS705."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloscope import units
from hloscope.chips import Chip
from hloscope.passes.replication import ReplicatedLeaf, Replication
from hloscope.pipeline.findings import Category, Finding, Quantity, Severity, Site, Unit
from hloscope.pipeline.pytree_paths import keys_of
from hloscope.pipeline.rules import Limits, rule

__all__ = ["replicated_parameter"]

_SMALL = 1 << 20  # bytes of a leaf that nobody shards
_SHOWN_GROUPS = 6


@rule("HS705", "replicated-parameter", Category.SHARDING)
def replicated_parameter(
    replication: Replication, chip: Chip | None, limits: Limits
) -> Iterator[Finding]:
    """Finds training state that devices hold alike though they split the batch.

    What it does:
        Compares how each leaf of the state (1 MiB or more) lies over the devices
        with how the batch does. Devices that work on different parts of the batch
        and hold the same part of a leaf could share it: along a mesh axis that
        splits the batch and not the leaf. Only leaves with a dimension that these
        devices divide count. What sharding would free has to be ``state_share``
        (10%) of the chip's memory, or where that is unknown of the state, and
        ``replicated_bytes`` (256 MiB) at least. Of a dump the shardings that its
        parameters print are read; where they say nothing this is not checked.

    Why it costs:
        With Adam in float32 a parameter takes 16 bytes a device together with
        its gradient; data parallelism keeps all of it on every device. Sharding
        the optimizer state costs no more traffic: the gradients' all-reduce
        becomes a reduce-scatter and an all-gather of the same bytes. Sharding
        the parameters too costs gathers in the forward and backward pass. For a
        model that is small beside the chip's memory keeping copies is right.

    Example:
            mesh = jax.make_mesh((8,), ("data",))
            replicated = NamedSharding(mesh, P())
            state = jax.device_put(state, replicated)          # 8 copies
            batch = jax.device_put(batch, NamedSharding(mesh, P("data")))

    Use instead:
        Shard the optimizer state over the same axis, and the parameters too
        where they are large:

            sharded = NamedSharding(mesh, P("data"))           # of a dimension that 8 divides
            opt_state = jax.tree.map(lambda x: jax.device_put(x, sharded), opt_state)

        and give the step the same ``out_shardings``, so that it stays there.
    """
    leaves = [leaf for leaf in replication.leaves if leaf.bytes >= _SMALL]
    for whole in (True, False):
        rows = [leaf for leaf in leaves if leaf.whole is whole]
        saved = sum(leaf.bytes - leaf.sharded_bytes for leaf in rows)
        memory = chip.memory_bytes if chip is not None else None
        share = saved / (memory or replication.state_bytes or 1)
        if not rows or saved < limits.replicated_bytes or share < limits.state_share:
            continue
        # Without the chip's memory nothing says that it is short; a state that is
        # sharded over other axes was laid out with care.
        roomy = memory is None or not whole
        severity = Severity.NOTE if roomy else Severity.WARNING
        yield _finding(rows, saved, share, severity, chip if memory else None)


def _finding(
    rows: Sequence[ReplicatedLeaf],
    saved: int,
    share: float,
    severity: Severity,
    chip: Chip | None,
) -> Finding:
    first = max(rows, key=lambda row: row.bytes)
    held = sum(row.bytes for row in rows)
    axes = list(dict.fromkeys(axis for row in rows for axis in row.axes))
    over = f"the mesh axis {' and '.join(axes)}" if axes else "devices"
    cost = Quantity("bytes freed on a device", saved, Unit.BYTES)
    share_of = "share of the chip's memory" if chip is not None else "share of the state"
    return Finding(
        code="HS705",
        name="replicated-parameter",
        category=Category.SHARDING,
        severity=severity,
        message=f"{len(rows)} leaves of the state are replicated over {over}, which "
        f"{'splits' if axes else 'split'} the batch",
        site=Site(leaf=first.leaf.path),
        evidence=(
            Quantity("bytes held on a device", held, Unit.BYTES),
            Quantity("bytes if sharded", held - saved, Unit.BYTES),
            cost,
            Quantity(share_of, share, Unit.SHARE),
            Quantity("copies", max(row.copies for row in rows)),
        ),
        cost=cost,
        fix=f"Shard them over {' and '.join(axes) or 'these devices'}: first the optimizer's "
        "state (ZeRO), which costs no traffic, and the parameters if that is not enough.",
        notes=tuple(_groups(rows)),
    )


def _groups(rows: Sequence[ReplicatedLeaf]) -> Iterator[str]:
    """What each group of leaves (an argument's first keys) takes, and would if sharded."""
    groups: dict[str, list[ReplicatedLeaf]] = {}
    for row in rows:
        groups.setdefault("".join(keys_of(row.leaf.path)[:3]), []).append(row)
    order = sorted(groups.items(), key=lambda item: -sum(row.bytes for row in item[1]))
    for name, members in order[:_SHOWN_GROUPS]:
        held = units.byte_size(sum(row.bytes for row in members))
        left = units.byte_size(sum(row.sharded_bytes for row in members))
        many = "1 leaf" if len(members) == 1 else f"{len(members)} leaves"
        yield f"{name}: {many}, {held} on a device, {left} if sharded"
    if len(order) > _SHOWN_GROUPS:
        yield f"and {len(order) - _SHOWN_GROUPS} groups more"
