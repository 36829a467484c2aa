"""Stretches of a loop's body in which the place of a carried array holds nothing.

A loop carries its arrays in place: the body reads what it was given, and later
writes what the next run is given into the same memory. From the last reading to
the writing that memory holds nothing, and XLA lays other buffers there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hloscope.ir import Computation
from hloscope.passes.buffers import Buffer, BufferTable
from hloscope.passes.call_graph import Call, CallGraph, CallKind

__all__ = ["Hole", "find_holes"]


@dataclass(frozen=True, slots=True)
class Hole:
    """One such stretch.

    Attributes:
        body: The computation whose positions count.
        new: What is written after it.
        holder: The temporary whose memory it is; ``None`` where that is an
            argument's or a result's.
        first: The first position without a use.
        last: The last one.
    """

    body: Computation
    new: Buffer
    holder: Buffer | None
    first: int
    last: int


def find_holes(
    tables: Mapping[Computation, BufferTable], graph: CallGraph, results: frozenset[int]
) -> tuple[Hole, ...]:
    """Find the holes of all loops whose body is called from one place.

    Args:
        tables: The buffers of every computation that runs, callees first.
        graph: Says which loop runs which body.
        results: Identities of buffers that are results in memory of their own.
    """
    return tuple(_holes(tables, graph, results))


def _holes(
    tables: Mapping[Computation, BufferTable], graph: CallGraph, results: frozenset[int]
) -> Iterator[Hole]:
    holders: dict[int, Buffer | None] = {}
    for body in reversed(list(tables)):
        table = tables[body]
        given = [b for p in body.parameters for b in table.values[p]]
        call = _only_loop(body, graph)
        if call is None:
            if body not in graph.callers or not graph.callers[body]:
                holders.update((id(buffer), None) for buffer in given)
            continue
        outside = tables[call.caller.computation].values.get(call.caller, ())
        for buffer, outer in zip(given, outside, strict=False):
            whole = outer.resolve()
            if id(whole) in results:
                holders[id(buffer)] = None
            elif not whole.external:
                holders[id(buffer)] = whole
            elif id(whole) in holders:
                holders[id(buffer)] = holders[id(whole)]
        for buffer, last, new in table.carried:
            if id(buffer) in holders and last + 1 <= new.first - 1:
                yield Hole(body, new, holders[id(buffer)], last + 1, new.first - 1)


def _only_loop(body: Computation, graph: CallGraph) -> Call | None:
    calls = graph.callers.get(body, ())
    if len(calls) == 1 and calls[0].kind is CallKind.BODY:
        return calls[0]
    return None
