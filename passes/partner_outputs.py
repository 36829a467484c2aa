"""Which result a leaf of the arguments becomes, by its pytree path."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from hloscope.ir.signature import InputLeaf, OutputLeaf, Signature
from hloscope.pipeline.pytree_paths import Keys, keys_of

__all__ = ["PartnerOutputs"]

_MOST_PREFIX_KEYS = 6


class PartnerOutputs:
    """Matches ``state['params']['w']`` with ``[0]['params']['w']``.

    Behind the argument's name and behind some prefix of the results, the two
    paths are the same. Which prefix is an argument's is settled once for all
    of its leaves: by the aliases that are there, then by how many leaves agree
    in dtype and dimensions, then by how many paths match at all. A result
    becomes the partner of one argument only, the one with the most to say for it.

    Args:
        signature: Paths of both sides.
        aliased: Path of every aliased leaf to the index of its result.
    """

    def __init__(self, signature: Signature, aliased: Mapping[str, int]) -> None:
        self._by_path: dict[Keys, OutputLeaf] = {}
        # The results of a bare module have numbers in place of paths.
        for output in signature.outputs if signature.basis == "captured" else ():
            self._by_path.setdefault(keys_of(output.path), output)
        suffixes: dict[Keys, list[tuple[Keys, OutputLeaf]]] = defaultdict(list)
        for keys, output in self._by_path.items():
            for size in range(min(len(keys), _MOST_PREFIX_KEYS) + 1):
                suffixes[keys[size:]].append((keys[:size], output))
        votes: dict[str, Counter[Keys]] = defaultdict(Counter)
        for leaf in signature.inputs:
            root, *rest = keys_of(leaf.path) or ("",)
            for prefix, output in suffixes.get(tuple(rest), ()):
                weight = _weight(leaf, output, aliased)
                # An argument that is one array has no path to match, so its shape must.
                if rest or weight > 1 or (leaf.dimensions and leaf.dimensions == output.dimensions):
                    votes[root][prefix] += weight
        self._prefix = self._settle(votes, signature)

    def _settle(self, votes: Mapping[str, Counter[Keys]], signature: Signature) -> dict[str, Keys]:
        """Give each argument its prefix, strongest claims first."""
        tails: dict[str, list[Keys]] = defaultdict(list)
        for leaf in signature.inputs:
            root, *rest = keys_of(leaf.path) or ("",)
            tails[root].append(tuple(rest))
        claimed: set[Keys] = set()
        settled: dict[str, Keys] = {}
        for root in sorted(votes, key=lambda root: -max(votes[root].values())):
            ranked = [prefix for prefix, _ in votes[root].most_common()]
            paths = {
                prefix: {(*prefix, *tail) for tail in tails[root]} & self._by_path.keys()
                for prefix in ranked
            }
            free = [prefix for prefix in ranked if not paths[prefix] & claimed]
            settled[root] = (free or ranked)[0]
            claimed |= paths[settled[root]]
        return settled

    def by_path(self, leaf: InputLeaf) -> OutputLeaf | None:
        """The result at the leaf's path behind its argument, if there is one."""
        root, *rest = keys_of(leaf.path) or ("",)
        prefix = self._prefix.get(root)
        if prefix is None:
            return None
        return self._by_path.get((*prefix, *rest))


def _weight(leaf: InputLeaf, output: OutputLeaf, aliased: Mapping[str, int]) -> int:
    if output.index is not None and aliased.get(leaf.path) == output.index:
        return 1_000_000
    if (leaf.dtype, leaf.dimensions) == (output.dtype, output.dimensions):
        return 1_000
    return 1
