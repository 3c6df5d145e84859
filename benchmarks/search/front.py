"""Several objectives: the hypervolume that a search has after each trial, beside Optuna's samplers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from autoopt.metrics import Objective
from autoopt.search import Feedback, SearchConfig, create_study
from autoopt.search.optuna_study.study import quiet
from autoopt.search.samplers.optuna_sampler import OptunaSampler
from autoopt.search.study import Study
from benchmarks.search.hypervolume import hypervolume
from benchmarks.search.table import OBJECTIVE, Row, Table
from benchmarks.search.uniform import UniformSampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

TWO: Final = (OBJECTIVE, Objective("size", "minimize"))
THREE: Final = (*TWO, Objective("drop", "minimize"))
"""The loss of quality too, without a limit."""
TRIALS: Final = 40
SHOWN: Final = (10, 20, 40)
POPULATION: Final = 10
"""Of NSGA-II: with Optuna's 50, all 40 trials would be random."""
BEYOND: Final = 0.1
"""Distance of the reference point from the worst values of the whole front, relative to its extent."""


def _tpe(seed: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    with quiet():
        return TPESampler(seed=seed, multivariate=True, group=True, warn_independent_sampling=False)


def _nsga_2(seed: int) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=POPULATION)


PEERS: Final[Mapping[str, Callable[[int], BaseSampler]]] = {"MOTPE": _tpe, "NSGA-II": _nsga_2}
SAMPLERS: Final = ("unified", *PEERS, "random")
QNEHVI: Final = "qNEHVI"
"""On demand only, because it needs BoTorch."""


class Peer(OptunaSampler):
    """A sampler of Optuna's over the choice of chain and its parameters together."""

    def __init__(self, table: Table, name: str, seed: int, objectives: Sequence[Objective]) -> None:
        self._create = PEERS[name]
        super().__init__(table.chains, name, seed, objectives)

    def create(self, seed: int) -> BaseSampler:
        """Create the sampler with its options."""
        return self._create(seed)


def volumes(table: Table, name: str, seed: int, objectives: tuple[Objective, ...]) -> list[float]:
    """The share of the table's hypervolume after each trial."""
    study = _study(table, name, seed, objectives)
    noise = Random(f"noise:{seed}")
    front = _front([_losses(row, objectives) for rows in table.rows for row in rows if _counts(row, objectives)])
    reference = [max(column) + BEYOND * ((max(column) - min(column)) or 1.0) for column in zip(*front, strict=True)]
    whole = hypervolume(front, reference)
    seen: list[tuple[float, ...]] = []
    shares: list[float] = []
    while len(shares) < TRIALS and (proposals := study.ask(1)):
        (proposal,) = proposals
        row = table.row(proposal.chain, proposal.point)
        study.tell(proposal.number, _feedback(table, proposal.chain, proposal.point, noise, objectives))
        if _counts(row, objectives):
            seen = _front([*seen, _losses(row, objectives)])
        shares.append(hypervolume(seen, reference) / whole)
    return shares + [shares[-1]] * (TRIALS - len(shares))


def _study(table: Table, name: str, seed: int, objectives: tuple[Objective, ...]) -> Study:
    config = SearchConfig(trials=TRIALS, seed=seed, stop_early=False)
    if name == "unified":
        return create_study(config, table.chains, objectives)
    if name == "random":
        return Study(config, table.chains, objectives, UniformSampler(table.chains))
    if name == QNEHVI:
        from benchmarks.search.qnehvi import HypervolumeSampler

        return Study(config, table.chains, objectives, HypervolumeSampler(table.chains, objectives, TRIALS, seed))
    return Study(config, table.chains, objectives, Peer(table, name, seed, objectives))


def _counts(row: Row, objectives: Sequence[Objective]) -> bool:
    """True if a row may be on the front: with the loss of quality as an objective, its limit does not hold."""
    return row.feasible or (objectives == THREE and not row.failed and bool(row.latency))


def _losses(row: Row, objectives: Sequence[Objective]) -> tuple[float, ...]:
    return (math.log(row.value), math.log(row.size), row.violation)[: len(objectives)]


def _feedback(
    table: Table, chain: str, point: dict[str, dict[str, object]], noise: Random, objectives: Sequence[Objective]
) -> Feedback:
    row = table.row(chain, point)
    feedback = table.measure(chain, point, noise)
    if objectives != THREE or not _counts(row, objectives):
        return feedback
    latency = noise.choice(row.latency) if len(row.latency) > 1 else row.value * math.exp(noise.gauss(0, table.noise))
    return replace(feedback, values={"latency": latency, "size": row.size, "drop": row.violation}, violation=0.0)


def _front(points: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """The points that no other one dominates."""
    front: list[tuple[float, ...]] = []
    for point in sorted(points):
        if not any(all(a <= b for a, b in zip(other, point, strict=True)) for other in front):
            front.append(point)
    return front


def line(name: str, shares: Sequence[Sequence[float]]) -> str:
    """The means over the replays of one sampler: after some trials, and over all trials."""
    cells = [f"{statistics.fmean(share[shown - 1] for share in shares):.2f}" for shown in SHOWN]
    cells.append(f"{statistics.fmean(map(statistics.fmean, shares)):.2f}")
    return f"| {name} | {' | '.join(cells)} |"
