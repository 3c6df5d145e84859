"""A table: every point of a search space with what it gave, and the JSON file that holds it."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from autoopt.metrics import Objective
from autoopt.model.inspection import Inspection
from autoopt.registry import registry
from autoopt.search import ChainSpace, Feedback
from autoopt.search.history import Steps, steps_of
from autoopt.space import NodeSpace, SearchSpace, definition_from_json, definition_to_json
from benchmarks.search.costs import Measuring

FACTS = ("op_counts", "layer_parameters", "parameters", "bytes", "opsets")
"""The facts about a model that its table keeps. Tables of earlier versions have more."""
OBJECTIVE = Objective("latency", "minimize")
TIGHT = " (tight)"
SOURCE = "source"
"""Key of the source model, as a study has it."""


@dataclass(frozen=True)
class Row:
    """One point. `latency`: one value per recording, in units of the source model's (ratio). `violation`: as told to a
    search, <= 0 is feasible. `size`: ratio to the source. `artifact`: equal ones are one candidate; of one `twin`, all
    have the same figures. `path`: what each pass left. `passes`: seconds of CPU of each of them, if recorded."""

    latency: tuple[float, ...] = ()
    violation: float = 0.0
    size: float = 1.0
    failed: bool = False
    artifact: str = ""
    twin: str = ""
    path: tuple[str, ...] = ()
    passes: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        """The median recording: a session may be slow for as long as it lives, and one such must not count."""
        return statistics.median(self.latency) if self.latency else math.inf

    @property
    def feasible(self) -> bool:
        return not self.failed and self.violation <= 0 and bool(self.latency)


@dataclass(frozen=True)
class Table:
    """`rows[c][i]`: point `i` of chain `c`. `noise`: relative deviation of one recording, robust (see `noise_of`)."""

    name: str
    chains: tuple[ChainSpace, ...]
    rows: tuple[tuple[Row, ...], ...]
    noise: float
    about: dict[str, Any] = field(default_factory=dict)
    share: float = 0.0
    """At least so large a share of the points counts as good, whatever the tolerance."""
    measuring: Mapping[str, Measuring] = field(default_factory=dict)
    """The costs of each candidate, by its artifact; empty in tables that were recorded without looks."""

    @property
    def inspection(self) -> Inspection:
        """The facts about the model that need no measurement."""
        return Inspection(inputs=(), outputs=(), ir_version=0, **{name: self.about["facts"][name] for name in FACTS})

    @cached_property
    def points(self) -> int:
        return sum(len(rows) for rows in self.rows)

    @cached_property
    def best(self) -> float:
        """The latency of the candidate that an exhaustive search would choose; infinite without a feasible point.

        It is chosen by all recordings but one, and that one tells its latency: the lowest of many noisy values is a
        lucky one. The median of all such choices counts.
        """
        candidates = {row.artifact: row.latency for rows in self.rows for row in rows if row.feasible}
        count = max(map(len, candidates.values()), default=0)
        if count < 2:
            return min((row.value for rows in self.rows for row in rows if row.feasible), default=math.inf)
        complete = [latency for latency in candidates.values() if len(latency) == count]
        return statistics.median(_choice_told_by(recording, complete) for recording in range(count))

    def regret(self, value: float) -> float:
        """The slowdown of a latency against the best, as a fraction; a lucky one is not faster."""
        return max(0.0, value / self.best - 1)

    @property
    def tolerance(self) -> float:
        return max(0.02, 3 * self.noise)

    @cached_property
    def good(self) -> int:
        """Number of points within tolerance of the best."""
        return sum(self.is_good(row) for rows in self.rows for row in rows)

    def is_good(self, row: Row) -> bool:
        return row.feasible and row.value <= self._limit

    @cached_property
    def _limit(self) -> float:
        values = sorted(row.value for rows in self.rows for row in rows if row.feasible)
        wanted = round(self.share * self.points)
        return max(self.best * (1 + self.tolerance), values[min(wanted, len(values)) - 1] if wanted else 0.0)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {chain.id: place for place, chain in enumerate(self.chains)}

    def row(self, chain: str, point: dict[str, Any]) -> Row:
        place = self._places[chain]
        return self.rows[place][self.chains[place].space.index(point)]

    def measure(self, chain: str, point: dict[str, Any], rng: Random) -> Feedback:
        """One noisy measurement: one of the recordings, or for synthetic tables a draw around the only one.

        As in a run, a point that breaks a constraint has no latency, because quality is measured first.
        """
        row, path = self.row(chain, point), self.path(chain, point)
        if row.failed or not row.latency:
            return Feedback({}, row.violation, row.failed, row.artifact or None, row.twin or None, path)
        values = {"size": row.size}
        if row.violation <= 0:
            noisy = row.value * math.exp(rng.gauss(0, self.noise))
            values["latency"] = rng.choice(row.latency) if len(row.latency) > 1 else noisy
        return Feedback(values, row.violation, False, row.artifact or None, row.twin or None, path)

    def path(self, chain: str, point: dict[str, Any]) -> tuple[str, ...]:
        """Keys of the candidates on the way, as far as the table tells which of them are equal."""
        row = self.row(chain, point)
        if row.path or not row.artifact:
            return row.path
        steps = steps_of(self.chains[self._places[chain]].nodes, point)
        return tuple(self._states[steps[:length]] for length in range(1, len(steps) + 1))

    @cached_property
    def _states(self) -> dict[Steps, str]:
        """Steps -> a key that is equal for equal candidates.

        A table holds the final candidates only. Two beginnings count as one candidate if they have the same
        continuations and each of these leads both to the same final candidate.
        """
        results: dict[Steps, dict[Steps, str]] = {}
        for chain, rows in zip(self.chains, self.rows, strict=True):
            for point, row in zip(chain.space.iterate(), rows, strict=True):
                steps = steps_of(chain.nodes, point)
                for length in range(len(steps) + 1):
                    results.setdefault(steps[:length], {})[steps[length:]] = row.artifact
        keys: dict[frozenset[tuple[Steps, str]], str] = {}
        states: dict[Steps, str] = {}
        for steps, suffixes in results.items():
            states[steps] = suffixes.get((), "") or keys.setdefault(frozenset(suffixes.items()), f"state {len(keys)}")
        return states

    def tightened(self, share: float) -> Table:
        """The same with a limit on quality that this share of the points that did not fail breaks."""
        violations = sorted(row.violation for rows in self.rows for row in rows if not row.failed)
        limit = violations[round((1 - share) * len(violations))]
        above = min((value for value in violations if value > limit), default=limit)
        shift = (limit + above) / 2
        rows = tuple(tuple(replace(row, violation=row.violation - shift) for row in rows) for rows in self.rows)
        return replace(self, name=f"{self.name}{TIGHT}", rows=rows)

    def shuffled(self, seed: int) -> Table:
        """The control: the same outcomes, dealt out to the points at random. Nothing can be learnt from it."""
        flat = [replace(row, path=(), passes=()) for rows in self.rows for row in rows]
        Random(seed).shuffle(flat)
        it = iter(flat)
        rows = tuple(tuple(next(it) for _ in rows) for rows in self.rows)
        return replace(self, name=f"{self.name}-shuffled", rows=rows)


def _choice_told_by(recording: int, candidates: Sequence[tuple[float, ...]]) -> float:
    """The latency in one recording of the candidate that is best by the others."""
    chosen = min(candidates, key=lambda latency: sum(latency) - latency[recording])
    return chosen[recording]


def save(table: Table, path: Path) -> None:
    """Write a table; `.gz` compresses. The bytes depend on nothing but the table."""
    data = {
        "name": table.name,
        "noise": table.noise,
        "about": table.about,
        "chains": [
            {
                "id": c.id,
                "passes": c.passes,
                "nodes": {n: _node_json(s) for n, s in c.space.nodes.items()},
                "cuts": c.space.cuts,
                "start": [c.weight, c.prior],
            }
            for c in table.chains
        ],
        "measuring": {artifact: measuring.row() for artifact, measuring in table.measuring.items()},
        "rows": [[_row_json(row) for row in rows] for rows in table.rows],
    }
    text = json.dumps(data, separators=(",", ":"), default=list) + "\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


def load(path: Path) -> Table:
    raw = path.read_bytes()
    data = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    chains = tuple(map(_chain, data["chains"]))
    rows = tuple(tuple(_row(row) for row in rows) for rows in data["rows"])
    measuring = {artifact: Measuring.from_row(row) for artifact, row in data.get("measuring", {}).items()}
    return Table(data["name"], chains, rows, data["noise"], data["about"], measuring=measuring)


def _chain(data: Mapping[str, Any]) -> ChainSpace:
    """A chain as a run has it: the registry says which passes prepare, and if the last one only sets how it runs."""
    passes = tuple((node, name) for node, name in data["passes"])
    space = SearchSpace({node: _node(values) for node, values in data["nodes"].items()}, tuple(data["cuts"]))
    weight, prior = data.get("start", (1.0, ()))[:2]
    return ChainSpace(
        data["id"],
        passes,
        space,
        weight,
        tuple(prior),
        sets_only_run=registry().info(passes[-1][1]).session_only,
    )


def _node_json(space: NodeSpace) -> dict[str, Any]:
    return {
        "search": {n: definition_to_json(p) for n, p in space.search.items()},
        "fixed": dict(space.fixed),
        "defaults": {n: definition_to_json(p) for n, p in space.defaults.items()},
    }


def _node(data: dict[str, Any]) -> NodeSpace:
    defaults = {n: definition_from_json(p) for n, p in data["defaults"].items()}
    return NodeSpace({n: definition_from_json(p) for n, p in data["search"].items()}, data["fixed"], defaults)


def _row_json(row: Row) -> list[Any]:
    latency = [float(f"{v:.5g}") for v in row.latency]
    shown = [latency, float(f"{row.violation:.4g}"), float(f"{row.size:.5g}"), int(row.failed), row.artifact[:12]]
    if row.passes:
        shown += [row.twin, row.path, [float(f"{seconds:.3g}") for seconds in row.passes]]
    return shown


def _row(data: list[Any]) -> Row:
    latency, violation, size, failed, artifact, *recorded = data
    twin, path, passes = recorded or ("", (), ())
    return Row(tuple(latency), violation, size, bool(failed), artifact, twin, tuple(path), tuple(passes))
