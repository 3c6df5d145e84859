"""First points of a search: drawn, an expert's, or learned from the other tables, with this one left out.

The effects of passes and values are learned from as many points of each table as a run has trials, and pooled by the
similarity of the models (`autoopt/search/surrogates/effects.py`); so are failures and broken constraints.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias, get_args

from autoopt.dag.proposal.first_points import FIRST_VALUES, FOR_CONVOLUTIONS, LEFT_OUT, LITTLE
from autoopt.dag.warm_start import MAX_LEARNED, MAX_WEIGHT
from autoopt.search import ChainSpace, SearchConfig, create_study
from autoopt.search.samplers.initial_points import DIVERSE, diverse_chains, initial_points
from autoopt.search.surrogates.effects import Effect, Factor, Scale, estimated_effects, pooled_effects
from autoopt.space import Point
from benchmarks.search.report import percentile
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.table import OBJECTIVE, Row, Table

Beginning: TypeAlias = Literal[
    "drawn", "expert", "expert: misled", "expert: certain", "expert: weighed", "learned: drawn", "learned: best"
]
BEGINNINGS: Final[tuple[Beginning, ...]] = get_args(Beginning)
SHOWN: Final = (3, 6)
"""Trials after which the regret is taken."""
WORST: Final = 2.0
"""Largest regret that counts, also before anything feasible."""

WEIGHTS: Final[Mapping[str, tuple[int, int, int]]] = {
    "cifar10_resnet8": (77_056, 650, 0),
    "dtln_stage1": (0, 32_896, 330_240),
    "hand_keypoint_mlp": (0, 1_070, 0),
    "hand_motion_lstm": (0, 2_600, 1_280),
    "magika_v3_3": (655_360, 126_016, 0),
    "mnist_cntk": (3_400, 2_560, 0),
    "sms_transformer": (0, 590_080, 0),
}
"""Elements of the weights of each model's convolutions, of its matrix products, and of its recurrent operators."""
LATE_DYNAMIC: Final = ("magika_v3_3",)
"""Models of which convolutions do most of the work, so that their proposals try dynamic quantization late."""
LEAST: Final = 0.1
"""Similarity of models that have nothing in common."""

LOSS: Final = Scale()
FAILURE: Final = Scale(of_pass=0.3, of_value=0.3, noise=0.2)
"""Of the label 1 of a point that fails or breaks a constraint, against 0."""
TRUST: Final[Mapping[str, float]] = {"expert: certain": 2.0, "expert: weighed": 0.0}
"""Standard deviations by which an expected gain must differ from nothing before it weighs a chain."""
LIKELY: Final = 0.5
"""Expected label of a point that is likely to fail."""
MOST: Final = 2.0
"""The largest weight that effects give a chain."""


@dataclass(frozen=True)
class Effects:
    """Effects of passes and values, by token."""

    loss: Mapping[Factor, Effect]
    """On the log ratio."""
    failure: Mapping[Factor, Effect]
    """On the label 1 of a point that fails or breaks a constraint, against 0."""


def factors_of(chain: ChainSpace, point: Point) -> list[Factor]:
    """The passes of a point and their searched values."""
    factors: list[Factor] = []
    for node, name in chain.passes:
        factors.append(Factor(name))
        factors += [Factor(name, key, json.dumps(value)) for key, value in point.get(node, {}).items()]
    return list(dict.fromkeys(factors))


def effects_on(table: Table, rng: Random) -> Effects:
    """The effects on one model, learned from as many random points as a run has trials."""
    rows: list[tuple[list[Factor], Row]] = []
    for chain, outcomes in zip(table.chains, table.rows, strict=True):
        rows += [(factors_of(chain, point), row) for point, row in zip(chain.space.iterate(), outcomes, strict=True)]
    rows = rng.sample(rows, SHIPPED)
    measured = [(factors, math.log(row.value)) for factors, row in rows if row.feasible]
    labels = [(factors, float(not row.feasible)) for factors, row in rows]
    return Effects(estimated_effects(measured, LOSS), estimated_effects(labels, FAILURE))


def similarity(a: str, b: str) -> float:
    """Similarity of two tables' models, `LEAST` to 1, by the kinds of their weights and their number."""
    square = 0.0
    total_a, total_b = sum(WEIGHTS[a]), sum(WEIGHTS[b])
    for of_a, of_b in zip(WEIGHTS[a], WEIGHTS[b], strict=True):
        square += 2 * (math.sqrt(of_a / total_a) - math.sqrt(of_b / total_b)) ** 2
    square += 0.5 * math.log10(total_a / total_b) ** 2
    return LEAST + (1 - LEAST) * math.exp(-square)


def expected(name: str, tables: Sequence[Table], rng: Random) -> Effects:
    """The effects to expect on a model, from the tables of the others."""
    sources = [(similarity(name, table.name), effects_on(table, rng)) for table in tables if table.name != name]
    loss = pooled_effects([(weight, effects.loss) for weight, effects in sources], LOSS)
    return Effects(loss, pooled_effects([(weight, effects.failure) for weight, effects in sources], FAILURE))


class Scores:
    """Scores of points under some effects: log ratio plus risk of failure; less is better."""

    def __init__(self, effects: Effects, rng: Random | None) -> None:
        """Take the means of the effects, or with `rng` a draw of each (Thompson sampling)."""
        self._loss = {factor: _value(effect, rng) for factor, effect in effects.loss.items()}
        self._failure = {factor: _value(effect, rng) for factor, effect in effects.failure.items()}

    def best(self, chain: ChainSpace) -> tuple[float, Point]:
        """The best point of a chain with its score."""
        points = list(chain.space.iterate())
        scores = [self._score(factors_of(chain, point)) for point in points]
        best = scores.index(min(scores))
        return scores[best], points[best]

    def _score(self, factors: Sequence[Factor]) -> float:
        risk = sum(self._failure.get(factor, 0.0) for factor in factors)
        return sum(self._loss.get(factor, 0.0) for factor in factors) + min(1.0, max(0.0, risk))


def _value(effect: Effect, rng: Random | None) -> float:
    return effect.mean if rng is None else rng.gauss(effect.mean, effect.deviation)


def beginning_with(table: Table, beginning: Beginning, others: Sequence[Table], seed: int) -> Table:
    """The table with the first points that a search is to begin with as prior points of its chains."""
    if beginning == "drawn":
        return table
    if beginning == "expert":
        return as_proposed(table)
    if beginning == "expert: misled":
        return _misled(as_proposed(table))
    effects = expected(table.name, others, Random(f"effects:{seed}"))
    if beginning in TRUST:
        return _weighed(as_proposed(table), effects, TRUST[beginning])
    if beginning == "learned: best":
        scores = Scores(effects, None)
        chains = sorted(table.chains, key=lambda chain: scores.best(chain)[0])
        return _with_priors(table, {c.id: [scores.best(c)[1]] for c in diverse_chains(chains, DIVERSE)})
    # The same chains as without it: where what was learned misleads, other values of theirs are as good.
    by_id = {chain.id: chain for chain in table.chains}
    points: dict[str, list[Point]] = {}
    for chain, _ in initial_points(table.chains, SHIPPED, seed):
        points[chain] = [Scores(effects, Random(f"{seed}:{chain}")).best(by_id[chain])[1]]
    return _with_priors(table, points)


def _misled(table: Table) -> Table:
    """The table with the preferences that earlier runs would give, at their worst: the worst chains at their worst."""
    worst: dict[str, Point] = {}
    best: dict[str, float] = {}
    for chain, rows in zip(table.chains, table.rows, strict=True):
        values = [(row.value, number) for number, row in enumerate(rows) if row.feasible]
        if values:
            worst[chain.id] = list(chain.space.iterate())[max(values)[1]]
            best[chain.id] = min(values)[0]
    wrong = sorted(best, key=lambda chain: -best[chain])[:MAX_LEARNED]
    chains: list[ChainSpace] = []
    for chain in table.chains:
        if chain.id in wrong:
            point = worst[chain.id]
            others = [other for other in chain.prior if other != point]
            chains.append(replace(chain, weight=MAX_WEIGHT, prior=(point, *others)))
        else:
            chains.append(chain)
    return replace(table, chains=tuple(chains))


def _with_priors(table: Table, points: Mapping[str, Sequence[Point]]) -> Table:
    return replace(table, chains=tuple(replace(c, prior=tuple(points.get(c.id, ()))) for c in table.chains))


def _weighed(table: Table, effects: Effects, trust: float) -> Table:
    """The table with weights of the chains with prior points, above 1 where the effects promise a gain."""
    chains: list[ChainSpace] = []
    for chain in table.chains:
        gain = max((promised_gain(factors_of(chain, point), effects, trust) for point in chain.prior), default=1.0)
        chains.append(replace(chain, weight=gain))
    return replace(table, chains=tuple(chains))


def promised_gain(factors: Sequence[Factor], effects: Effects, trust: float) -> float:
    """How many times faster a point is, less `trust` standard deviations; 1 to `MOST`, 1 if it is likely to fail."""
    loss = sum(effects.loss[factor].mean for factor in factors if factor in effects.loss)
    variance = sum(effects.loss[factor].variance for factor in factors if factor in effects.loss)
    risk = sum(effects.failure[factor].mean for factor in factors if factor in effects.failure)
    if risk > LIKELY:
        return 1.0
    return min(MOST, max(1.0, math.exp(-loss - trust * math.sqrt(variance))))


def as_proposed(table: Table) -> Table:
    """The table with the first points of the search of a proposed graph: preparation alone comes last, or nearly so."""
    points = _expert_points(table)
    chains: list[ChainSpace] = []
    for chain in table.chains:
        lossy = _lossy_node(chain)
        is_late = not lossy or (lossy in ("dynamic", "dense") and table.name in LATE_DYNAMIC)
        weight = LITTLE if chain.id in points and is_late else 1.0
        chains.append(replace(chain, prior=tuple(points.get(chain.id, ())), weight=weight))
    return replace(table, chains=tuple(chains))


def _expert_points(table: Table) -> dict[str, list[Point]]:
    """First points of the search of a proposed graph, as far as the table has them."""
    convolutions, _, recurrent = WEIGHTS[table.name]
    first_values = FOR_CONVOLUTIONS if convolutions and not recurrent else FIRST_VALUES
    points: dict[str, list[Point]] = {}
    seen: set[str] = set()
    for chain in table.chains:
        lossy = _lossy_node(chain)
        if lossy in seen or set(chain.nodes) & set(LEFT_OUT):
            continue
        seen.add(lossy)
        points[chain.id] = [next(chain.space.iterate())] if not lossy else []
        for values in first_values.get("dynamic" if lossy == "dense" else lossy, ()):
            point = _point_with(chain, lossy, values)
            if point is not None and point not in points[chain.id]:
                points[chain.id].append(point)
    return points


def _lossy_node(chain: ChainSpace) -> str:
    return next((node for node in chain.nodes if node in ("static", "dynamic", "dense", "weights")), "")


def _point_with(chain: ChainSpace, node: str, values: Mapping[str, object]) -> Point | None:
    """The first point of a chain whose node has these values, as far as it searches them."""
    for point in chain.space.iterate():
        own = point.get(node, {})
        if all(_as_set(own[name]) == _as_set(value) for name, value in values.items() if name in own):
            return point
    return None


def _as_set(value: object) -> object:
    return frozenset(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Start:
    """One replay: trials until the first good point, and the regret after each number of trials in `SHOWN`."""

    hit: int
    regret: tuple[float, ...]


def replay(table: Table, seed: int) -> Start:
    """Search a table with the default strategy until a good point."""
    config = SearchConfig(trials=SHIPPED, seed=seed, stop_early=False)
    study = create_study(config, table.chains, (OBJECTIVE,))
    study.config = config.overridden({"trials": table.points})
    noise = Random(f"noise:{seed}")
    regrets: list[float] = []
    best, hit = math.inf, 0
    while (not hit or len(regrets) < max(SHOWN)) and (proposals := study.ask(1)):
        (proposal,) = proposals
        row = table.row(proposal.chain, proposal.point)
        study.tell(proposal.number, table.measure(proposal.chain, proposal.point, noise))
        if row.feasible:
            best = min(best, row.value)
        regrets.append(min(WORST, table.regret(best)))
        if table.is_good(row) and not hit:
            hit = len(regrets)
    return Start(hit or table.points + 1, tuple(regrets[min(shown, len(regrets)) - 1] for shown in SHOWN))


def line(name: str, beginning: Beginning, starts: Sequence[Start], shuffled: Sequence[Start]) -> str:
    """One row of the table."""
    hits = sorted(start.hit for start in starts)
    within = statistics.fmean(hit <= SHOWN[0] for hit in hits)
    regrets = [f"{statistics.fmean(start.regret[i] for start in starts):.1%}" for i in range(len(SHOWN))]
    control = f"{statistics.fmean(start.hit for start in shuffled):.1f}"
    cells = [f"{within:.0%}", f"{percentile(hits, 0.5):g}", f"{percentile(hits, 0.8):g}", *regrets, control]
    return f"| {name} | {beginning} | {' | '.join(cells)} |"


def markdown(lines: Sequence[str]) -> str:
    """The rows as a table."""
    head = "| table | first points | within 3 | p50 | p80 | regret after 3 | after 6 | shuffled, mean |"
    return "\n".join([head, "|---" * 8 + "|", *lines]) + "\n"
