"""The result document of a run (`autoopt run --json`), read back as typed records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoopt.metrics import Estimate, known_metric

SOURCE = "source"
"""What stands for a chain where the source model itself is meant."""


@dataclass(frozen=True)
class Model:
    """The source model, the best one, or one of the Pareto front. `label`: `source`, `best` or `front`."""

    label: str
    artifact: str = ""
    path: str = ""
    chain: str = ""
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Full configuration by node."""
    point: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The searched parameters among them."""
    session_options: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, Estimate] = field(default_factory=dict)
    """The metrics with their confidence intervals, where they have one."""
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    measured: Mapping[str, Any] = field(default_factory=dict)
    """How its figures came about; see `autoopt.engine.run.measurement_summary`."""

    @property
    def key(self) -> tuple[str, str]:
        """What tells one candidate from another."""
        return self.artifact, repr(sorted(self.session_options.items()))


@dataclass(frozen=True)
class Trial:
    """One trial as reports show it; `chain` is the readable name."""

    number: int
    chain: str
    point: Mapping[str, Mapping[str, Any]]
    outcome: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Estimate] = field(default_factory=dict)
    violation: float = 0.0
    message: str = ""
    seconds: float = 0.0

    @property
    def feasible(self) -> bool:
        """Whether it came to its end and meets the constraints."""
        return self.outcome == "ok" and self.violation <= 0

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trial:
        return Trial(
            number=int(data.get("number", 0)),
            chain=str(data.get("chain", "")),
            point=data.get("point") or {},
            outcome=str(data.get("outcome", "")),
            metrics={name: estimate(value).value for name, value in (data.get("metrics") or {}).items()},
            ratios={name: estimate(value) for name, value in (data.get("ratios") or {}).items()},
            violation=float(data.get("violation") or 0.0),
            message=str(data.get("message") or ""),
            seconds=float(data.get("seconds") or 0.0),
        )


@dataclass(frozen=True)
class RunDocument:
    """A whole run. Metric values are in the metric's own unit, ratios are candidate / source."""

    run: str
    status: str
    source: Model
    best: Model | None
    front: tuple[Model, ...]
    trials: Mapping[str, int]
    pass_runs: Mapping[str, int]
    evaluations: Mapping[str, int]
    seconds: Mapping[str, float]
    asked: tuple[str, ...] = ()
    """Metrics of the objectives and constraints."""
    stopped: str = ""
    notes: tuple[str, ...] = ()
    reused: bool = False
    targets: tuple[Target, ...] = ()
    """Of a run over several targets: what it found for each."""
    single: Single | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RunDocument:
        """Read the document; parts that it lacks stay empty."""
        baseline = data.get("baseline") or {}
        best = data.get("best")
        return RunDocument(
            run=str(data.get("run", "")),
            status=str(data.get("status", "")),
            source=_model("source", {"chain": SOURCE, **baseline}),
            best=_model("best", best) if best else None,
            front=tuple(_model("front", item) for item in data.get("pareto") or ()),
            trials=data.get("trials") or {},
            pass_runs=data.get("pass_runs") or {},
            evaluations=data.get("evaluations") or {},
            seconds=data.get("seconds") or {},
            asked=tuple(
                str(item.get("metric", "")) for part in ("objectives", "constraints") for item in data.get(part) or ()
            ),
            stopped=str(data.get("stopped") or ""),
            notes=tuple(str(note) for note in data.get("notes") or ()),
            reused=bool(data.get("reused", False)),
            targets=tuple(Target.from_json(item) for item in data.get("targets") or ()),
            single=Single.from_json(data["best_single"]) if data.get("best_single") else None,
        )

    @property
    def models(self) -> tuple[Model, ...]:
        """Source, best, then the rest of the front; no candidate twice."""
        best = [self.best] if self.best and self.best.chain != SOURCE else []
        shown = [self.source, *best]
        seen = {model.key for model in best}
        for model in self.front:
            if model.key not in seen and model.chain != SOURCE:
                seen.add(model.key)
                shown.append(model)
        return tuple(shown)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics to show: objectives and constraints, size, quality, and a latency in any case."""
        names = dict.fromkeys(name for model in self.models for name in model.metrics)
        asked = {*self.asked, *(() if any(kind(name) == "latency" for name in self.asked) else ("latency_p50",))}
        shown = [name for name in names if name in asked or kind(name) not in ("latency", "memory")]
        return tuple(sorted(shown, key=lambda name: _ORDER.get(kind(name), len(_ORDER))))


@dataclass(frozen=True)
class Target:
    """One of several targets: its name, what it is, and its own part of the run."""

    name: str
    words: str
    made_on: str
    """The target whose search made the best model."""
    document: RunDocument

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Target:
        what = data.get("target") or {}
        threads = what.get("threads", 1)
        words = [str(what.get("execution_provider", "")), f"{threads} thread{'' if threads == 1 else 's'}"]
        if what.get("python"):
            words.append(f"the runtime of {what['python']}")
        made_on = str(data.get("best_made_on", ""))
        return Target(str(data.get("name", "")), ", ".join(words), made_on, RunDocument.from_json(data))


@dataclass(frozen=True)
class Single:
    """The best single model for all targets, as it is on each; `value` is what it was chosen by."""

    metric: str
    how: str
    value: Estimate
    models: Mapping[str, Model]

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Single:
        models = {name: _model("single", item) for name, item in (data.get("targets") or {}).items()}
        return Single(str(data.get("metric", "")), str(data.get("how", "")), estimate(data), models)


_ORDER = {"latency": 0, "size": 1, "memory": 2, "task": 3, "fidelity": 4, "custom": 5}


def kind(metric: str) -> str:
    """The kind of a metric by its name; unknown ones are `custom`."""
    found = known_metric(metric)
    return found.kind if found else "custom"


def estimate(value: Any) -> Estimate:
    """An estimate from its JSON form, from `[low, high]`, or from a plain number."""
    if isinstance(value, Mapping):
        middle = float(value["value"])
        return Estimate(middle, float(value.get("low", middle)), float(value.get("high", middle)))
    if isinstance(value, Sequence):
        low, high = (float(bound) for bound in value)
        return Estimate((low + high) / 2, low, high)
    return Estimate.exact(float(value))


def _model(label: str, data: Mapping[str, Any]) -> Model:
    return Model(
        label=label,
        artifact=str(data.get("artifact") or ""),
        path=str(data.get("path") or ""),
        chain=str(data.get("chain") or ""),
        params=data.get("params") or {},
        point=data.get("point") or {},
        session_options=data.get("session_options") or {},
        metrics={name: estimate(value).value for name, value in (data.get("metrics") or {}).items()},
        intervals={name: estimate(value) for name, value in (data.get("intervals") or {}).items()},
        ratios={name: estimate(value) for name, value in (data.get("ratios") or {}).items()},
        flags=tuple(str(flag) for flag in data.get("flags") or ()),
        measured=data.get("measured") or {},
    )
