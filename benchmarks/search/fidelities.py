"""Replays at their true cost: seconds of CPU of passes, quality, looks and latencies, as a table recorded them.

A candidate costs the passes that no earlier point has run on the same model, the quality and, if that meets the limit,
the latency. A search asks for a point that repeats a candidate at the cost of its passes alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias

from autoopt.measure.latency.measurement import HOPELESS
from autoopt.metrics import NORMAL
from autoopt.search import Feedback, Proposal, SearchConfig, create_study
from autoopt.search.study import Study
from autoopt.search.transitions import Step, steps_of
from benchmarks.search.costs import Look
from benchmarks.search.report import MANY, percentile
from benchmarks.search.simulate import SHIPPED
from benchmarks.search.table import OBJECTIVE, SOURCE, Row, Table
from benchmarks.search.transfer import as_proposed
from benchmarks.search.uniform import UniformSampler

Part: TypeAlias = Literal["passes", "quality", "looks", "latency"]
PARTS: Final[tuple[Part, ...]] = ("passes", "quality", "looks", "latency")
TRIALS: Final = 150
"""Candidates after which a search is given up."""
LEAST_ERROR: Final = 0.005
"""Standard error of the logarithm of a latency on a table without noise."""


@dataclass(frozen=True)
class Scheme:
    """A way of measuring the latencies of a search."""

    is_random: bool = False
    batch: int = 1
    """Points asked for at a time."""
    complete: int = 1
    """Candidates of a batch that are measured in full, at most."""
    factor: float = HOPELESS
    """A look this much slower than the best so far is not followed by a full measurement."""


SCHEMES: Final[Mapping[str, Scheme]] = {
    "random": Scheme(is_random=True),
    "unified": Scheme(),
    "looks": Scheme(factor=1.05),
    "looks, 4 at a time": Scheme(batch=4, complete=2, factor=1.05),
}
"""A run measures as `unified` does: it gives a candidate up early that is hopeless."""


@dataclass(frozen=True)
class Spent:
    """One replay: distinct candidates until a good one was measured in full, infinite if that never happened."""

    candidates: float
    seconds: Mapping[Part, float]

    @property
    def total(self) -> float:
        """Seconds of CPU; infinite without a good point."""
        return sum(self.seconds.values()) if math.isfinite(self.candidates) else math.inf


@dataclass
class _Candidate:
    """A point that was asked for, with its look if its latency counts."""

    proposal: Proposal
    row: Row
    feedback: Feedback
    look: Look | None = None


class _Bench:
    """Makes and measures candidates, and counts what that takes."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.seconds: Counter[Part] = Counter()
        self.best = math.inf
        """The lowest latency that was measured in full."""
        self.is_good = False
        self.candidates = 0
        self._noise = Random(f"noise:{seed}")
        self._nodes = {chain.id: chain.nodes for chain in table.chains}
        self._steps: set[tuple[str, Step]] = set()
        self._known: dict[str, Feedback] = {}

    def make(self, proposal: Proposal) -> _Candidate:
        """Run the passes and measure the quality, unless the candidate is known."""
        row = self.table.row(proposal.chain, proposal.point)
        feedback = self.table.measure(proposal.chain, proposal.point, self._noise)
        self._run_passes(proposal, row)
        known = next((self._known[name] for name in (row.artifact, row.twin) if name in self._known), None)
        if known is not None:
            repeated = replace(known, path=feedback.path, artifact=feedback.artifact, twin=feedback.twin)
            return _Candidate(proposal, row, repeated)
        self.candidates += 1
        candidate = _Candidate(proposal, row, feedback)
        if row.artifact in self.table.measuring:
            self.seconds["quality"] += self.table.measuring[row.artifact].quality
        if "latency" in feedback.values:
            looks = self.table.measuring[row.artifact].looks
            ratio = feedback.values["latency"]
            candidate.look = self._noise.choice(looks) if looks else Look(ratio, ratio, ratio, 0.0)
        return candidate

    def _run_passes(self, proposal: Proposal, row: Row) -> None:
        before = SOURCE
        for step, after, seconds in zip(
            steps_of(self._nodes[proposal.chain], proposal.point), row.path, row.passes, strict=False
        ):
            if (before, step) not in self._steps:
                self._steps.add((before, step))
                self.seconds["passes"] += seconds
            before = after

    def measure(self, round_: Sequence[_Candidate], scheme: Scheme) -> None:
        """Look at the candidates of a round, and measure those in full that promise most."""
        looked = [candidate for candidate in round_ if candidate.look is not None]
        promising = [each for each in looked if _look(each).ratio <= self.best * scheme.factor]
        promising = sorted(promising, key=lambda each: _look(each).ratio)[: scheme.complete]
        for candidate in looked:
            is_complete = candidate in promising
            if not is_complete or scheme.batch > 1:  # a single one goes on from its look, with the same sessions
                self.seconds["looks"] += _look(candidate).seconds
            if is_complete:
                self._complete(candidate)
            else:
                _tell_look(candidate)
        for candidate in round_:
            self._known.setdefault(candidate.row.artifact, candidate.feedback)
            if candidate.row.twin:
                self._known.setdefault(candidate.row.twin, candidate.feedback)

    def _complete(self, candidate: _Candidate) -> None:
        self.seconds["latency"] += self.table.measuring[candidate.row.artifact].latency
        self.best = min(self.best, candidate.feedback.values["latency"])
        self.is_good |= self.table.is_good(candidate.row)
        error = max(self.table.noise, LEAST_ERROR)
        candidate.feedback = replace(candidate.feedback, errors={OBJECTIVE.metric: error})


def _look(candidate: _Candidate) -> Look:
    assert candidate.look is not None
    return candidate.look


def _tell_look(candidate: _Candidate) -> None:
    """Let the look stand for the latency, with the error that its interval tells."""
    look = _look(candidate)
    values = {**candidate.feedback.values, OBJECTIVE.metric: look.ratio}
    error = max(math.log(look.high / look.low) / (2 * NORMAL), LEAST_ERROR)
    candidate.feedback = replace(candidate.feedback, values=values, errors={OBJECTIVE.metric: error})


def replayed(table: Table, scheme: Scheme, seed: int) -> Spent:
    """Search until a good point was measured in full."""
    table = as_proposed(table)
    config = SearchConfig(seed=seed, trials=SHIPPED, stop_early=False)
    if scheme.is_random:
        study = Study(config, table.chains, (OBJECTIVE,), UniformSampler(table.chains))
    else:
        study = create_study(config, table.chains, (OBJECTIVE,))
    study.config = config.overridden({"trials": table.points})
    bench = _Bench(table, seed)
    while bench.candidates < TRIALS and (proposals := study.ask(scheme.batch)):
        round_ = [bench.make(proposal) for proposal in proposals]
        bench.measure(round_, scheme)
        for candidate in round_:
            study.tell(candidate.proposal.number, candidate.feedback)
        if bench.is_good:
            return Spent(bench.candidates, bench.seconds)
    return Spent(math.inf, bench.seconds)


def line(table: Table, name: str, spent: Sequence[Spent]) -> str:
    """One row of the table."""
    candidates = sorted(each.candidates for each in spent)
    totals = sorted(each.total for each in spent)
    cells = [f"{percentile(candidates, share):g}" for share in (0.5, 0.8)]
    cells.append(f"{sum(number > MANY for number in candidates)} of {len(spent)}")
    cells += [f"{percentile(totals, share):.3g}" for share in (0.5, 0.8)]
    whole = sum(sum(each.seconds.values()) for each in spent)
    cells.append(", ".join(f"{sum(each.seconds[part] for each in spent) / whole:.0%}" for part in PARTS))
    return f"| {table.name} | {name} | {' | '.join(cells)} |"


def markdown(lines: Sequence[str]) -> str:
    """The rows as a table."""
    shown = ", ".join(PARTS)
    head = f"| table | scheme | p50 | p80 | not within {MANY} | seconds: p50 | p80 | {shown} |"
    return "\n".join([head, "|---" * 8 + "|", *lines]) + "\n"
