"""The best candidate without its preparation: passes meant to help, such as a simplifier, make some models slower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from autoopt.search.history import History
from autoopt.search.samplers.initial_points import first_untried
from autoopt.search.samplers.run_settings import best_of
from autoopt.search.trial import ChainSpace, Trial, point_key
from autoopt.space import Point

MAX_TRIALS: Final = 2
"""Trials without preparation that are suggested; the models of the search know by then what it is worth."""
Nodes: TypeAlias = tuple[str, ...]


class PlainChains:
    """Suggests the best point so far in the chain that has the least of its preparation."""

    def __init__(self, chains: Sequence[ChainSpace]) -> None:
        """Group the chains by the nodes that they have besides preparation."""
        self._own = {chain.id for chain in chains}
        self._groups: dict[Nodes, list[ChainSpace]] = {}
        for chain in chains:
            self._groups.setdefault(chain.essential, []).append(chain)

    def next(self, history: History) -> tuple[str, Point] | None:
        """Return the best point without preparation; None if that is tried, or enough other points were."""
        whole = [trial for trial in history.trials if trial.proposal.upto is None]
        # A sampler of one chain of many sees the trials of all.
        trials = [trial for trial in whole if trial.proposal.chain in self._own]
        best = best_of(trials, history)
        if best is None:
            return None
        plain = self._plain(history.by_id[best.proposal.chain])
        if plain is None or self._count(trials, history) >= MAX_TRIALS:
            return None
        point = _point_in(plain, best.proposal.point)
        if not plain.space.allows(point):
            return None
        return first_untried([(plain.id, point)], history)

    def _plain(self, chain: ChainSpace) -> ChainSpace | None:
        """Return the chain with the least of another's preparation and the same other nodes.

        None without one, and if that would be the source model itself.
        """
        if not chain.essential:
            return None
        own = chain.preparation

        def remaining(other: ChainSpace) -> tuple[int, int]:
            return len(own & other.preparation), len(other.passes)

        plain = min(self._groups[chain.essential], key=remaining)
        return None if plain.preparation >= own else plain

    def _count(self, trials: Sequence[Trial], history: History) -> int:
        """Count the trials that repeat an earlier one without its preparation."""
        repeated: set[tuple[str, str]] = set()
        count = 0
        for trial in trials:
            chain = history.by_id[trial.proposal.chain]
            key = point_key(chain.essential, trial.proposal.point)
            count += (chain.id, key) in repeated
            plain = self._plain(chain)
            if plain is not None:
                repeated.add((plain.id, key))
        return count


def _point_in(chain: ChainSpace, point: Point) -> Point:
    """The values of a point for the nodes of another chain; the first ones for nodes that the point lacks."""
    own: Point = {}
    for node, space in chain.space.nodes.items():
        values = point[node] if node in point else space[0]
        if values:
            own[node] = values
    return own
