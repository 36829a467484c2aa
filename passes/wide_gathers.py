"""Exchanges that carry too wide a type: those of parameters, and all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hloscope.ir.signature import InputLeaf, Role
from hloscope.passes.collective_dtypes import CollectiveDtypes, WideCollective
from hloscope.passes.collectives import CollectiveKind
from hloscope.passes.exchanges import Exchange, Exchanges
from hloscope.pipeline.analyses import analysis

__all__ = ["WideExchanges", "WideGather", "split_wide_exchanges"]


@dataclass(frozen=True, slots=True)
class WideGather:
    """A parameter that is gathered in a wider type than it is used in.

    Attributes:
        wide: The exchange with both types.
        exchange: What is known of it beside.
    """

    wide: WideCollective
    exchange: Exchange

    @property
    def leaves(self) -> tuple[InputLeaf, ...]:
        """The arguments whose shards are gathered."""
        return self.exchange.moved


@dataclass(frozen=True, slots=True)
class WideExchanges:
    """Each exchange of a wider type than needed in one of two lists.

    Attributes:
        gathers: Gathers of parameters that are narrowed afterwards.
        others: What moves values that the step computes, and what widens them first.
    """

    gathers: Sequence[WideGather]
    others: Sequence[WideCollective]


@analysis
def split_wide_exchanges(dtypes: CollectiveDtypes, exchanges: Exchanges) -> WideExchanges:
    """Part the exchanges of :class:`CollectiveDtypes` by what they carry.

    A parameter is an argument that is no batch.
    """
    known = {row.collective.instruction: row for row in exchanges.rows}
    gathers, others = [], []
    for wide in dtypes.wide:
        exchange = known.get(wide.collective.instruction)
        if (
            exchange is not None
            and wide.collective.kind is CollectiveKind.ALL_GATHER
            and not wide.widened_before
            and exchange.moved
            and all(leaf.role is not Role.BATCH for leaf in exchange.moved)
        ):
            gathers.append(WideGather(wide, exchange))
        else:
            others.append(wide)
    return WideExchanges(gathers, others)
