"""Rows for the nodes of lanes, so that what crosses from lane to lane runs level."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

__all__ = ["place_rows"]

T = TypeVar("T", bound=Hashable)


def place_rows(
    lanes: Sequence[Sequence[T]], edges: Iterable[tuple[T, T]], *, upward: int
) -> Mapping[T, int]:
    """A row for every node, no two of a lane in one.

    Lanes run downwards in their own order, each node no higher than what it
    reads from the lanes before; the lane ``upward`` runs from the bottom up,
    each node as near as its neighbours below allow to the rows that it reads.

    Args:
        lanes: Nodes of each lane in the order of the schedule.
        edges: From what makes a value to what reads it.
        upward: Number of the lane that runs from the bottom up.
    """
    lane_of = {node: number for number, nodes in enumerate(lanes) for node in nodes}
    makers: dict[T, list[T]] = {}
    for source, target in edges:
        makers.setdefault(target, []).append(source)
    rows: dict[T, int] = {}
    pending = {n: list(nodes) for n, nodes in enumerate(lanes) if n != upward}
    free = dict.fromkeys(pending, 0)
    while any(pending.values()):
        # The node that waits for nothing that is not placed; the first lane breaks circles.
        ready = [
            number
            for number, nodes in pending.items()
            if nodes
            and all(
                maker in rows or lane_of.get(maker) in (number, upward)
                for maker in makers.get(nodes[0], ())
            )
        ]
        number = ready[0] if ready else next(n for n, nodes in pending.items() if nodes)
        node = pending[number].pop(0)
        read = [rows[m] for m in makers.get(node, ()) if m in rows and lane_of[m] != number]
        rows[node] = max([free[number], *read])
        free[number] = rows[node] + 1
    back = lanes[upward]
    height = max([len(back), *(row + 1 for row in rows.values())], default=0)
    ceiling = height
    for position, node in enumerate(back):
        read = [rows[m] for m in makers.get(node, ()) if m in rows and lane_of[m] != upward]
        wanted = round(sum(read) / len(read)) if read else ceiling - 1
        above = len(back) - 1 - position  # rows that the rest of the lane needs
        rows[node] = max(min(wanted, ceiling - 1), above)
        ceiling = rows[node]
    return rows
