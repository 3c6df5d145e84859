"""The one method a way of searching has to write: `next`. Light."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, TypeAlias

from autoopt.search.history import History
from autoopt.search.trial import ChainSpace
from autoopt.space import Point


@dataclass(frozen=True)
class Suggestion:
    """Try this next; see `Proposal`."""

    chain: str
    point: Point
    upto: str | None = None


@dataclass(frozen=True)
class Stop:
    """There is nothing more to try; `reason` says why."""

    reason: str


class _Wait:
    def __repr__(self) -> str:
        return "WAIT"


WAIT: Final = _Wait()
"""Running trials must be told before the next choice. Never answered where none is running."""

Decision: TypeAlias = Suggestion | Stop | _Wait


class Sampler(Protocol):
    """A way of searching, as a function of the history: what it keeps besides is only a cache of it."""

    def next(self, history: History, rng: Random) -> Decision:
        """The next thing to try, never one that `history` holds. `rng` belongs to this very trial."""


def exhausted(chain: ChainSpace) -> Stop:
    return Stop(f"all {chain.space.count} points are asked")
