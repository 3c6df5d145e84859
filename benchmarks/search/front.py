"""Several objectives: the hypervolume that a search has after each trial, beside Optuna's samplers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from autoopt.metrics import Objective
from autoopt.search import Feedback, SearchConfig, create_study
from autoopt.search.history import History
from autoopt.search.losses import Losses
from autoopt.search.optuna_study.study import quiet
from autoopt.search.samplers.base import Decision, Suggestion
from autoopt.search.samplers.initial_points import first_untried, initial_points
from autoopt.search.samplers.optuna_sampler import OptunaSampler
from autoopt.search.study import Study
from autoopt.search.surrogates.hypervolume import hypervolume
from autoopt.search.surrogates.scalarization import reference_point, undominated
from autoopt.search.surrogates.stopping import LITTLE
from benchmarks.search.first_points import as_proposed
from benchmarks.search.report import TABLES, recorded
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.stopping import Stop
from benchmarks.search.synthetic import FAMILIES, make
from benchmarks.search.table import OBJECTIVE, Row, Table, load
from benchmarks.search.uniform import UniformSampler

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

TWO: Final = (OBJECTIVE, Objective("size", "minimize"))
THREE: Final = (*TWO, Objective("drop", "minimize"))
"""The loss of quality too, in which the limit is 0 but does not hold."""
ASKS: Final = 4
"""Asks for each trial at most: points that repeat a candidate cost nothing, and some samplers ask little else."""
POPULATION: Final = 10
"""Of NSGA-II: with Optuna's 50, all 40 trials would be random."""
BEYOND: Final = 0.1
"""Distance of the reference point from the worst values that count, relative to their distance from the best."""


def _tpe(seed: int) -> BaseSampler:
    from optuna.samplers import TPESampler

    with quiet():
        return TPESampler(seed=seed, multivariate=True, group=True, warn_independent_sampling=False)


def _nsga_2(seed: int) -> BaseSampler:
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=POPULATION)


PEERS: Final[Mapping[str, Callable[[int], BaseSampler]]] = {"MOTPE": _tpe, "NSGA-II": _nsga_2}
SAMPLERS: Final = ("unified", *PEERS, "random")


class Peer(OptunaSampler):
    """A sampler of Optuna's over the choice of chain and its parameters together."""

    def __init__(self, table: Table, name: str, seed: int, objectives: Sequence[Objective]) -> None:
        self._create = PEERS[name]
        self._initial = initial_points(table.chains, SHIPPED, seed)
        super().__init__(table.chains, name, seed, objectives)

    def create(self, seed: int) -> BaseSampler:
        """Create the sampler with its options."""
        return self._create(seed)

    def next(self, history: History, rng: Random) -> Decision:
        """Suggest the points that `unified` begins with, then the sampler's."""
        initial = first_untried(self._initial, history)
        if initial is not None:
            return Suggestion(*initial)
        return super().next(history, rng)


def tables(first: int, count: int) -> dict[str, list[Table]]:
    """The recorded tables with the first points of a proposal, those of precisions, and `count` made-up ones."""
    sets = {name: [as_proposed(table)] for name, (table,) in recorded().items()}
    for path in sorted((TABLES / "precisions").glob("*.json.gz")):
        sets[f"precisions/{path.name.removesuffix('.json.gz')}"] = [as_proposed(load(path))]
    for family in FAMILIES[:2]:
        sets[f"synthetic {family.name}"] = [make(family, first + number) for number in range(count)]
    return sets


def volumes(table: Table, name: str, seed: int, objectives: tuple[Objective, ...], trials: int) -> list[float]:
    """The share of the table's hypervolume after each trial."""
    front = _whole_front(table, objectives)
    reference = _reference(front)
    whole = hypervolume(front, reference)
    seen: list[Losses] = []
    shares: list[float] = []
    study = _study(table, name, seed, objectives, trials)
    for row in itertools.islice(_replayed(study, table, seed, objectives, ASKS * trials), trials):
        if _counts(row, objectives):
            seen = undominated([*seen, _losses(row, objectives)])
        shares.append(hypervolume(seen, reference) / whole)
    return shares + [shares[-1]] * (trials - len(shares))


def ended(table: Table, seed: int, objectives: tuple[Objective, ...]) -> Stop:
    """Search a table with the default settings; what is left is a share of the hypervolume that was found."""
    study = create_study(SearchConfig(trials=SHIPPED, seed=seed), table.chains, objectives)
    front = _whole_front(table, objectives)
    rows: list[Losses] = []
    found: list[list[Losses]] = []
    for row in _replayed(study, table, seed, objectives, ASKS * SHIPPED):
        if _counts(row, objectives):
            rows.append(_losses(row, objectives))
        found.append(undominated(rows))
    reference = reference_point(rows, [1.0] * len(objectives))
    whole = hypervolume(undominated([*front, *rows]), reference)
    left = [whole / hypervolume(each, reference) - 1 if each else math.inf for each in found]
    good = [number for number, share in enumerate(left, start=1) if share <= LITTLE]
    bound = re.search(r"at most (\d+) %", study.finished or "")
    right = bound is not None and left[-1] <= int(bound[1]) / 100
    return Stop(len(found), min(good, default=math.inf), left[-1], bound is not None, right)


def _whole_front(table: Table, objectives: tuple[Objective, ...]) -> list[Losses]:
    return undominated([_losses(row, objectives) for rows in table.rows for row in rows if _counts(row, objectives)])


def _replayed(study: Study, table: Table, seed: int, objectives: tuple[Objective, ...], most: int) -> Iterator[Row]:
    """The rows that a study asks for one after the other; as in a run, repeats of a candidate are no trials."""
    noise = Random(f"noise:{seed}")
    known: dict[str, Feedback] = {}
    for _ in range(most):
        proposals = study.ask(1)
        if not proposals:
            return
        (proposal,) = proposals
        row = table.row(proposal.chain, proposal.point)
        feedback = _feedback(table, proposal.chain, proposal.point, noise, objectives)
        if row.artifact in known:
            study.tell(proposal.number, replace(known[row.artifact], path=feedback.path))
            continue
        if row.artifact:
            known[row.artifact] = feedback
        study.tell(proposal.number, feedback)
        yield row


def _reference(front: Sequence[Losses]) -> Losses:
    """The corner of the box, beyond the worst of the front and of the source's time and size and the limit on quality.

    The front alone gives a box as small as the noise where one candidate is nearly best in everything.
    """
    reference: list[float] = []
    for column in zip(*front, strict=True):
        worst = max(*column, 0.0)
        reference.append(worst + BEYOND * ((worst - min(column)) or 1.0))
    return tuple(reference)


def _study(table: Table, name: str, seed: int, objectives: tuple[Objective, ...], trials: int) -> Study:
    config = SearchConfig(trials=SHIPPED, seed=seed, stop_early=False)
    chains = table.chains
    if name == "unified":
        study = create_study(config, chains, objectives)
    elif name == "random":
        study = Study(config, chains, objectives, UniformSampler(chains))
    else:
        study = Study(config, chains, objectives, Peer(table, name, seed, objectives))
    study.config = config.overridden({"trials": ASKS * trials})
    return study


def _counts(row: Row, objectives: Sequence[Objective]) -> bool:
    """True if a row may be on the front: with the loss of quality as an objective, its limit does not hold."""
    return row.feasible or (objectives == THREE and not row.failed and bool(row.latency))


def _losses(row: Row, objectives: Sequence[Objective]) -> Losses:
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
