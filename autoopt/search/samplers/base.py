"""The contract of samplers: one method, `next`, from the history of trials to the next thing to try."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol, TypeAlias, runtime_checkable

from autoopt.metrics import Objective
from autoopt.search.history import History
from autoopt.search.trial import ChainSpace, Cost
from autoopt.space import Point
from autoopt.spec.search import SearchConfig


@dataclass(frozen=True)
class Suggestion:
    """The next thing to try; the fields are those of `Proposal`."""

    chain: str
    point: Point
    upto: str | None = None


@dataclass(frozen=True)
class Stop:
    """The end of a search: nothing is left to try, or nothing promises enough."""

    reason: str
    is_early: bool = False
    """True if promising points are left untried."""

    @property
    def text(self) -> str:
        return f"stopped early: {self.reason}" if self.is_early else self.reason


class _Wait:
    def __repr__(self) -> str:
        return "WAIT"


WAIT: Final = _Wait()
"""The sampler needs the results of running trials first. Never returned when no trial is running."""

Decision: TypeAlias = Suggestion | Stop | _Wait


class Sampler(Protocol):
    """A way of searching, as a function of the history; any other state is a cache of the history."""

    def next(self, history: History, rng: Random) -> Decision:
        """Return the next thing to try, never one that `history` holds. `rng` belongs to this one trial."""


@runtime_checkable
class ChainSampler(Sampler, Protocol):
    """A sampler that knows when a chain will get no further trial."""

    def may_return_to(self, history: History, chain: str) -> bool:
        """Tell if a later suggestion may be of this chain; once false, it stays so."""


@dataclass(frozen=True)
class SamplerInputs:
    """The part of a search that a sampler is made for."""

    config: SearchConfig
    chains: tuple[ChainSpace, ...]
    """Under `unified` all chains; under `per-chain` the one chain, or part of a chain, to search."""
    objectives: tuple[Objective, ...]
    budget: int
    """Number of trials that the sampler can count on."""
    cost: Cost | None = None
    """Tells which candidates are measured already, to choose among equally promising points."""
    first: Sequence[tuple[str, Point]] = ()
    """(chain id, point) to try before all others, in this order; those of other chains are ignored."""
    node_objectives: Mapping[str, Sequence[Objective]] = field(default_factory=dict)
    """Node id -> objectives of partial chains that end there, where they differ from `objectives`."""


CreateSampler: TypeAlias = Callable[[SamplerInputs], Sampler]
"""The class of a sampler that the list in `autoopt.spec.search` names."""


def exhausted(points: int) -> Stop:
    """Stop because all points were asked."""
    return Stop("the only point tried" if points == 1 else f"all {points} points tried")
