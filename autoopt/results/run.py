"""The result of a run: the models worth having, and the figures of every target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.space import Point


@dataclass(frozen=True)
class Choice:
    """A model worth having: the best one, or one of the Pareto front."""

    artifact: str
    path: str
    session_options: Mapping[str, Any]
    chain: str
    """Readable name, `source` for the source model."""
    passes: tuple[str, ...]
    params: Mapping[str, Mapping[str, Any]]
    """Full configuration of each node."""
    metrics: Mapping[str, float]
    ratios: Mapping[str, Estimate]
    point: Point = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """What to know of it: constraints that cannot be told with confidence, a busy machine."""
    intervals: Mapping[str, Estimate] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)
    """How its figures came about; see `autoopt.engine.run.measurement_summary`. Empty in runs of earlier versions."""

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["session_options"] = dict(self.session_options)
        data["passes"] = list(self.passes)
        data["flags"] = list(self.flags)
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Choice:
        tuples = {name: tuple(data.get(name, ())) for name in ("passes", "flags")}
        estimates = {name: _estimates(data.get(name, {})) for name in ("ratios", "intervals")}
        return Choice(**{**data, **tuples, **estimates})


def _estimates(data: Mapping[str, Mapping[str, float]]) -> dict[str, Estimate]:
    return {name: Estimate(e["value"], e["low"], e["high"]) for name, e in data.items()}


@dataclass(frozen=True)
class RunResult:
    """What a run found. `status`: `finished`, `nothing meets the constraints`, or `cancelled`."""

    run: str
    status: str
    baseline: Mapping[str, Any]
    best: Choice | None
    pareto: tuple[Choice, ...]
    trials: Mapping[str, int]
    pass_runs: Mapping[str, int]
    evaluations: Mapping[str, int]
    seconds: Mapping[str, float]
    reused: bool = False
    """Whether an identical finished run answered and nothing was executed."""
    notes: tuple[str, ...] = ()
    stopped: str = ""
    """Why the search ended."""
    targets: tuple[TargetResult, ...] = ()
    """Of a run over several targets, the result for each; the other fields are then those of the first target, the
    counts are of all, and `best` is the best single model as measured on the first target."""
    best_single: SingleBest | None = None
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The document that `autoopt run --json` prints."""
        several = {
            "targets": [t.to_json() for t in self.targets],
            "best_single": self.best_single.to_json() if self.best_single else None,
        }
        return {
            "run": self.run,
            "status": self.status,
            "reused": self.reused,
            "baseline": dict(self.baseline),
            "best": self.best.to_json() if self.best else None,
            "pareto": [c.to_json() for c in self.pareto],
            "trials": dict(self.trials),
            "pass_runs": dict(self.pass_runs),
            "evaluations": dict(self.evaluations),
            "seconds": dict(self.seconds),
            "stopped": self.stopped,
            "notes": list(self.notes),
            "objectives": [asdict(o) for o in self.objectives],
            "constraints": [{k: v for k, v in asdict(c).items() if v is not None} for c in self.constraints],
            **(several if self.targets else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RunResult:
        """The reverse of `to_json`."""
        best, single = data.get("best"), data.get("best_single")
        return RunResult(
            **{
                **data,
                "best": Choice.from_json(best) if best else None,
                "pareto": tuple(Choice.from_json(c) for c in data.get("pareto", ())),
                "notes": tuple(data.get("notes", ())),
                "objectives": tuple(Objective(**o) for o in data.get("objectives", ())),
                "constraints": tuple(Constraint(**c) for c in data.get("constraints", ())),
                "targets": tuple(TargetResult.from_json(t) for t in data.get("targets", ())),
                "best_single": SingleBest.from_json(single) if single else None,
            }
        )

    def as_reused(self, seconds: float) -> RunResult:
        """The same answer for an identical request: nothing executed, everything reused."""
        pass_runs, evaluations = (
            {"executed": 0, "reused": done["executed"] + done["reused"]} for done in (self.pass_runs, self.evaluations)
        )
        return replace(
            self,
            reused=True,
            pass_runs=pass_runs,
            evaluations=evaluations,
            seconds={"total": round(seconds, 3)},
            targets=tuple(replace(t, result=t.result.as_reused(seconds)) for t in self.targets),
        )


@dataclass(frozen=True)
class TargetResult:
    """What a run over several targets found for one of them."""

    name: str
    target: Mapping[str, Any]
    """Device, execution provider, threads, memory, interpreter."""
    result: RunResult
    """Of the target's own search, `run` being its id; but `best` is the best of everything measured there."""
    made_on: str = ""
    """The target whose search made `best`."""

    def to_json(self) -> dict[str, Any]:
        own = {"name": self.name, "target": dict(self.target), "best_made_on": self.made_on}
        return {**own, **self.result.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TargetResult:
        rest = dict(data)
        name, target, made_on = (rest.pop(key) for key in ("name", "target", "best_made_on"))
        return TargetResult(name, target, RunResult.from_json(rest), made_on)


@dataclass(frozen=True)
class SingleBest:
    """The best single model for all targets: it meets the constraints on each, and `value` is the best of all."""

    metric: str
    how: str
    """What `value` is, of the first objective `metric`."""
    value: Estimate
    choices: Mapping[str, Choice]
    """The model as it is on each target, by name."""
    made_on: str
    """The target whose search made it."""

    def to_json(self) -> dict[str, Any]:
        on = {name: choice.to_json() for name, choice in self.choices.items()}
        return {
            "metric": self.metric,
            "how": self.how,
            **asdict(self.value),
            "made_on": self.made_on,
            "chain": next(iter(self.choices.values())).chain,
            "artifact": next(iter(self.choices.values())).artifact,
            "targets": on,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SingleBest:
        choices = {name: Choice.from_json(choice) for name, choice in data["targets"].items()}
        value = Estimate(data["value"], data["low"], data["high"])
        return SingleBest(data["metric"], data["how"], value, choices, data["made_on"])
