"""Why the optimized HLO holds more or fewer product FLOPs than the jaxpr that it was made of.

Products are told apart by the line of Python, the pass (forward, backward, run
again) and the size, which both sides know. What cancels there needs no reason;
the rest is put down to what the module itself gives evidence of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from hloscope.ir import Instruction, Module
from hloscope.ir.jaxpr_count import JaxprCount, JaxprSite
from hloscope.ir.metadata import SourceLocation
from hloscope.passes.flop_gap import Gap, GapPart, Reason
from hloscope.passes.flops.counts import HEADLINE
from hloscope.passes.flops.ledger import FlopLedger, FlopRow
from hloscope.passes.masked_products import MaskedProducts
from hloscope.passes.multiplied_out import MultipliedOut
from hloscope.pipeline.analyses import analysis

__all__ = ["JaxprGap", "find_jaxpr_gap"]


_MOST_PADDED = Fraction(9, 8)  # a product's FLOPs, padded to a matrix unit's tiles, by those before


@dataclass(frozen=True, slots=True)
class JaxprGap:
    """The optimized HLO's products against the jaxpr's, both of one device.

    Attributes:
        devices: Devices that the program runs on. The jaxpr counts the whole
            program, the HLO what each device runs, so the jaxpr's FLOPs are
            divided by this.
        jaxpr: The jaxpr's FLOPs of one device.
        gap: From the jaxpr's to the HLO's, each nominal in the sense of
            :class:`hloscope.passes.flops.totals.FlopTotal`.
    """

    devices: int
    jaxpr: Fraction
    gap: Gap


@analysis
def find_jaxpr_gap(
    module: Module,
    ledger: FlopLedger,
    jaxpr: JaxprCount,
    multiplied: MultipliedOut,
    masked: MaskedProducts,
) -> JaxprGap:
    """Match products on both sides and give a reason to what is left over."""
    devices = module.num_partitions * module.replica_count
    rows = [row for row in ledger.rows if row.count.kind in HEADLINE and row.count.flops]
    matching = _Matching(devices, rows, jaxpr.sites, multiplied, masked)
    before = Fraction(jaxpr.total.nominal, devices)
    after = Fraction(sum(row.nominal for row in rows))
    unknown = {_line(group.example) for group in ledger.unknown_calls}
    gap = Gap(before, after, tuple(matching.parts(unknown)))
    return JaxprGap(devices, before, gap)


@dataclass(frozen=True, slots=True)
class _Key:
    """What both sides know of a product beside its size."""

    file: str
    line: int
    backward: bool
    recomputed: bool


@dataclass(slots=True)
class _Group:
    """The products of one key."""

    rows: list[FlopRow] = field(default_factory=list)
    sites: list[JaxprSite] = field(default_factory=list)
    hlo: Counter[Fraction] = field(default_factory=Counter)  # FLOPs of one -> how many are left
    jaxpr: Counter[Fraction] = field(default_factory=Counter)

    def add_row(self, row: FlopRow) -> None:
        self.rows.append(row)
        self.hlo[Fraction(row.count.flops or 0)] += row.times.nominal

    def add_site(self, site: JaxprSite, devices: int) -> None:
        self.sites.append(site)
        self.jaxpr[Fraction(site.each, devices)] += site.runs

    def cancel(self) -> None:
        """Take out what stands on both sides in the same size."""
        both = self.hlo & self.jaxpr
        self.hlo -= both
        self.jaxpr -= both

    @property
    def surplus(self) -> Fraction:
        """FLOPs that the HLO has more, negative where it has fewer."""
        return _flops(self.hlo) - _flops(self.jaxpr)

    def settle(self) -> None:
        """Take everything out: what was left over is accounted for elsewhere."""
        self.hlo.clear()
        self.jaxpr.clear()


def _flops(products: Mapping[Fraction, int]) -> Fraction:
    return sum((each * runs for each, runs in products.items()), Fraction(0))


class _Matching:
    """All groups of a program."""

    def __init__(
        self,
        devices: int,
        rows: Iterable[FlopRow],
        sites: Iterable[JaxprSite],
        multiplied: MultipliedOut,
        masked: MaskedProducts,
    ) -> None:
        self.devices = devices
        self.groups: defaultdict[_Key, _Group] = defaultdict(_Group)
        self.multiplied: Counter[_Key] = Counter()
        self.on_zeros: Counter[_Key] = Counter()
        for site in sites:
            key = _Key(site.file, site.line, site.backward, site.recomputed)
            self.groups[key].add_site(site, devices)
        for row in rows:
            self.groups[_key(row.instruction)].add_row(row)
        for instruction, flops in multiplied.flops.items():
            self.multiplied[_key(instruction)] += flops
        for each in masked.rows:
            self.on_zeros[_key(each.row.instruction)] += each.row.nominal - each.useful_flops
        for group in self.groups.values():
            group.cancel()
        self._give_sources()
        self._give_padded()
        self._merge_lines()

    def _give_sources(self) -> None:
        """Hand products that lost their source to where one of their size is missing.

        Compilers make new instructions without metadata, for example when they
        turn a convolution round.
        """
        lost = [key for key in self.groups if not key.file and self.groups[key].hlo]
        for key in lost:
            pool = self.groups[key]
            for group in self.groups.values():
                if group is not pool:
                    both = pool.hlo & group.jaxpr
                    pool.hlo -= both
                    group.jaxpr -= both

    def _give_padded(self) -> None:
        """Hand padded products to where somewhat smaller ones are missing.

        A product that is padded, and its result sliced, keeps the name of either
        pass, where both read what is padded, or none at all.
        """
        for key, pool in self.groups.items():
            places = [
                group
                for place, group in self.groups.items()
                if group is not pool and (not key.file or _line_of(place) == _line_of(key))
            ]
            for each in sorted(pool.hlo):
                spare = pool.hlo[each] - _near(pool.jaxpr, each)
                for group in sorted(places, key=lambda group: _distance(group.jaxpr, each)):
                    lacking = _near(group.jaxpr, each) - _near(group.hlo, each)
                    runs = min(spare, lacking)
                    if runs > 0:
                        group.hlo[each] += runs
                        pool.hlo[each] -= runs
                        spare -= runs
            pool.hlo += Counter()  # without those of which none is left

    def _merge_lines(self) -> None:
        """Settle groups of which one has just what others of the same pass lack.

        Products of one operand are merged into one, which keeps the line of the
        first. What is settled leaves fewer for the rest to be taken for.
        """
        settled = True
        while settled:
            settled = False
            for key, group in self.groups.items():
                lacking = self._lacking(key, group) if group.surplus > 0 else []
                for other in (group, *lacking) if lacking else ():
                    other.settle()
                    settled = True

    def _lacking(self, key: _Key, group: _Group) -> list[_Group]:
        """The groups that lack together what one has too many: one, the nearest, or all."""
        others = {
            place: other
            for place, other in self.groups.items()
            if other.surplus < 0
            and (not key.file or place.backward is key.backward)
            and (not key.file or place.recomputed is key.recomputed)
        }
        runs = [[other] for other in others.values()]
        for places in (
            [place for place in others if place.file == key.file and place.line > key.line],
            [place for place in others if place.file == key.file],
        ):
            places.sort(key=lambda place: abs(place.line - key.line))
            near = [others[place] for place in places]
            runs += [near[: length + 1] for length in range(len(near))]
        runs.append(list(others.values()))
        return next(
            (run for run in runs if run and sum(o.surplus for o in run) == -group.surplus), []
        )

    def parts(self, unknown: set[tuple[str, int]]) -> Iterator[GapPart]:
        """The reasons, with what each accounts for; they sum up to the whole difference.

        Args:
            unknown: Lines of custom calls that nothing is known of.
        """
        sums: dict[Reason, Fraction] = {}
        places: defaultdict[Reason, list[SourceLocation | None]] = defaultdict(list)
        merged = self._recomputed_by_line()
        for key, group in self.groups.items():
            surplus = group.surplus
            if not surplus:
                continue
            reasons = (
                self._more(key, group, surplus)
                if surplus > 0
                else self._fewer(key, group, -surplus, merged, unknown)
            )
            for reason, flops in reasons:
                sums[reason] = sums.get(reason, Fraction(0)) + flops
                places[reason].append(SourceLocation(key.file, key.line) if key.file else None)
        for reason, flops in sums.items():
            where = dict.fromkeys(places[reason])
            evidence = ", ".join(str(place or "no source line") for place in where)
            yield GapPart(reason, flops, evidence, tuple(place for place in where if place))

    def _more(
        self, key: _Key, group: _Group, surplus: Fraction
    ) -> Iterator[tuple[Reason, Fraction]]:
        """Why the HLO has more of a group than the jaxpr."""
        again = sum(row.nominal for row in group.rows if row.cloned)
        scores = sum(row.count.recomputed_flops * row.times.nominal for row in group.rows)
        for reason, flops in (
            (Reason.XLA_REMAT, Fraction(again)),
            (Reason.ATTENTION_SCORES, Fraction(scores)),
            (Reason.DENSE_RAGGED, Fraction(self.on_zeros[key])),
            (Reason.REPLICATED, self._replicated(group)),
        ):
            taken = min(surplus, flops)
            if taken:
                yield reason, taken
                surplus -= taken
        if not surplus:
            return
        # As many products, or fewer, that cost more: they are larger than was asked for.
        larger = 0 < group.hlo.total() <= group.jaxpr.total()
        yield (Reason.PADDING if larger else Reason.NOT_IN_JAXPR), surplus

    def _replicated(self, group: _Group) -> Fraction:
        """FLOPs above an even share, of products that were split over fewer devices or none."""
        more = Fraction(0)
        left = Counter(group.jaxpr)
        for each, runs in group.hlo.items():
            for share, wanted in left.items():
                factor = each / share
                if wanted and factor > 1 and self.devices % factor == 0:
                    number = min(runs, wanted)
                    left[share] -= number
                    more += (each - share) * number
                    break
        return more

    def _fewer(
        self,
        key: _Key,
        group: _Group,
        missing: Fraction,
        merged: Counter[tuple[str, int]],
        unknown: set[tuple[str, int]],
    ) -> Iterator[tuple[Reason, Fraction]]:
        """Why the HLO has less of a group than the jaxpr."""
        place = (key.file, key.line)
        dead = Fraction(sum(site.dead * site.each for site in group.sites), self.devices)
        repeated = Fraction(sum(site.repeated * site.each for site in group.sites), self.devices)
        hidden = place in unknown or ("", 0) in unknown
        for reason, flops in (
            (Reason.DEAD_CODE, dead),
            (Reason.MULTIPLIED_OUT, Fraction(self.multiplied[key])),
            (Reason.MERGED, repeated),
            (Reason.REMAT_UNDONE, Fraction(merged[place])),
            (Reason.UNKNOWN_CALLS, missing if hidden else Fraction(0)),
        ):
            taken = min(missing, flops)
            if taken:
                yield reason, -taken
                missing -= taken
                if reason is Reason.REMAT_UNDONE:
                    merged[place] -= int(taken)
        if missing:
            yield Reason.NOT_IN_HLO, -missing

    def _recomputed_by_line(self) -> Counter[tuple[str, int]]:
        """FLOPs of one device that ``jax.checkpoint`` asks to be run again, by line.

        A compiler that merges the second run with the first may keep either's name.
        """
        lines: Counter[tuple[str, int]] = Counter()
        for key, group in self.groups.items():
            again = sum(site.flops for site in group.sites if site.recomputed)
            if again:
                lines[key.file, key.line] += again // self.devices
        return lines


def _near(products: Mapping[Fraction, int], each: Fraction) -> int:
    """How many there are of a size, or of what padding would make it of."""
    return sum(
        runs for size, runs in products.items() if max(size, each) <= _MOST_PADDED * min(size, each)
    )


def _distance(products: Mapping[Fraction, int], each: Fraction) -> Fraction:
    """How far the nearest size is, as a share of a size; more than 1 where there is none."""
    return min((abs(size - each) / each for size in products), default=Fraction(2))


def _line_of(key: _Key) -> tuple[str, int]:
    return key.file, key.line


def _key(instruction: Instruction) -> _Key:
    scope = instruction.op_name.split(";")[0]
    return _Key(*_line(instruction), "transpose(" in scope, "rematted_computation" in scope)


def _line(instruction: Instruction) -> tuple[str, int]:
    location = instruction.location
    return ("", 0) if location is None else (location.file, location.line)
