"""Descents in a chain of a large space, with the log latencies of its points as sums of terms of nodes and of pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import numpy as np

from autoopt.search import ChainSpace
from autoopt.space import NodeSpace, Value

Tokens: TypeAlias = Sequence[str]
"""The values of a node's parameters, as names of effects."""
Term: TypeAlias = Callable[[str], float]
PairTerm: TypeAlias = Callable[[str, str], float]


@dataclass(frozen=True)
class ChainTerms:
    """The log latency of a chain's points: a constant, a term for each node and one for each pair of nodes."""

    settings: tuple[Sequence[Mapping[str, Value]], ...]
    """Of each node, in the order of the chain."""
    single: tuple[np.ndarray, ...]
    """Of each node, a term for each of its settings."""
    pairs: dict[tuple[int, int], np.ndarray]
    """Of each pair of nodes, a term for each pair of their settings."""
    constant: float

    def descend(self, start: Sequence[int]) -> float:
        """The log latency that a point reaches by changes of single nodes, the best one at each step.

        `start` has the number of each node's setting.
        """
        point = list(start)
        while True:
            changes = [self._changes(point, node) for node in range(len(point))]
            node = min(range(len(point)), key=lambda number: float(changes[number].min()))
            if changes[node].min() >= -1e-12:
                return self._log_latency(point)
            point[node] = int(changes[node].argmin())

    def _changes(self, point: Sequence[int], node: int) -> np.ndarray:
        """The change of the log latency with each setting of a node."""
        terms = self.single[node].copy()
        for (first, second), matrix in self.pairs.items():
            if first == node:
                terms += matrix[:, point[second]]
            elif second == node:
                terms += matrix[point[first], :]
        return np.asarray(terms - terms[point[node]])

    def _log_latency(self, point: Sequence[int]) -> float:
        single = sum(float(terms[setting]) for terms, setting in zip(self.single, point, strict=True))
        pairs = sum(float(matrix[point[first], point[second]]) for (first, second), matrix in self.pairs.items())
        return self.constant + single + pairs

    def random_start(self, chain: ChainSpace, rng: Random) -> list[int]:
        """The numbers of the settings of a random point."""
        point = chain.space.random_sample(rng)
        return [known.index(point.get(node, {})) for node, known in zip(chain.nodes, self.settings, strict=True)]


def chain_terms(chain: ChainSpace, constant: float, term: Term, pair_term: PairTerm) -> ChainTerms:
    """Sum the terms of values and of pairs of values by node; `constant` is that of the chain without values."""
    settings = [list(chain.space.nodes[node].iterate()) for node in chain.nodes]
    tokens = [_tokens(node, chain.space.nodes[node]) for node in chain.nodes]
    single = [np.array([_own(each, term, pair_term) for each in of_node]) for of_node in tokens]
    pairs: dict[tuple[int, int], np.ndarray] = {}
    for first, second in itertools.combinations(range(len(tokens)), 2):
        pairs[first, second] = _pairs(tokens[first], tokens[second], pair_term)
    return ChainTerms(tuple(settings), tuple(single), pairs, constant)


def _tokens(node: str, space: NodeSpace) -> list[list[str]]:
    return [[f"{node}.{name}={value}" for name, value in values.items()] for values in space.iterate()]


def _own(tokens: Tokens, term: Term, pair_term: PairTerm) -> float:
    return sum(map(term, tokens)) + sum(itertools.starmap(pair_term, itertools.combinations(tokens, 2)))


def _pairs(first: Sequence[Tokens], second: Sequence[Tokens], pair_term: PairTerm) -> np.ndarray:
    """The sums over pairs of values, for each pair of settings."""
    rows = sorted({token for tokens in first for token in tokens})
    columns = sorted({token for tokens in second for token in tokens})
    terms = np.array([[pair_term(row, column) for column in columns] for row in rows]).reshape(len(rows), len(columns))
    in_first = np.array([[row in tokens for row in rows] for tokens in first], float)
    in_second = np.array([[column in tokens for column in columns] for tokens in second], float)
    return np.asarray(in_first @ terms @ in_second.T)
