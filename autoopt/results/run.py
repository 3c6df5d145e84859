"""The result of a run: of one search, or of several parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Final

from autoopt import json_codec
from autoopt.metrics import Constraint, Objective
from autoopt.option_names import option
from autoopt.results.model import SCHEMA, Json, ModelResult, source_result


class NoteKind(StrEnum):
    """The kind of a note, which is also the word that it begins with."""

    PLAIN = ""
    WARNING = "WARNING"
    """Something makes the whole result doubtful, such as a source model that is no better than chance."""
    NO_DATA = "no data"
    """The way in which lossy models are judged without data."""


@dataclass(frozen=True)
class Note:
    """A sentence for the user."""

    text: str
    kind: NoteKind = NoteKind.PLAIN

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind else self.text


BASELINE: Final = ("artifact", "path", "metrics", "intervals")
"""The fields of the source model in the document of a run."""
INTERIM: Final = ("running", "interrupted", "cancelled", "failed")
"""Status of a run that has not finished."""


class TimeLimit(StrEnum):
    """The time limit that ended a search. One that ended with its sweep continues with the next sweep."""

    RUN = "run"
    SWEEP = "sweep"

    @property
    def text(self) -> str:
        if self is TimeLimit.RUN:
            return f"stopped at the time limit ({option('minutes')})"
        return "stopped because the time of the sweep was up"


@dataclass(frozen=True)
class SearchEnd:
    """The reason why a search ended; empty while it goes on."""

    text: str = ""
    limit: TimeLimit | None = None

    @staticmethod
    def of(results: Iterable[RunResult]) -> SearchEnd:
        """The end of these searches together."""
        ends = dict.fromkeys(result.end for result in results)
        limits = {end.limit for end in ends}
        limit = next((limit for limit in (TimeLimit.SWEEP, TimeLimit.RUN) if limit in limits), None)
        return SearchEnd("; ".join(end.text for end in ends), limit)


@dataclass(frozen=True)
class WorkCounts:
    """Pieces of work that were executed, and those answered from the store."""

    executed: int = 0
    reused: int = 0

    def __add__(self, other: WorkCounts) -> WorkCounts:
        return WorkCounts(self.executed + other.executed, self.reused + other.reused)


@dataclass(frozen=True)
class RunResult:
    """The result of a run. `status`: `finished`, a sentence on why there is no best model, or one of `INTERIM`."""

    run: str
    status: str
    reused: bool = False
    """True if an identical finished run answered and nothing was executed."""
    baseline: ModelResult = field(default_factory=source_result)
    """The source model as it was measured."""
    best: ModelResult | None = None
    """The best model; None if no model meets the constraints."""
    best_lossy: ModelResult | None = None
    """The best lossy model of a run in which only generated inputs judge it; `best` is then a lossless one."""
    front: tuple[ModelResult, ...] = field(default=(), metadata={"json": "pareto"})
    """The Pareto front."""
    trial_counts: Mapping[str, int] = field(default_factory=dict, metadata={"json": "trials"})
    """Number of trials by outcome; `total`, and the `infeasible` ones among those that are `ok`."""
    pass_runs: WorkCounts = field(default_factory=WorkCounts)
    evaluations: WorkCounts = field(default_factory=WorkCounts)
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time by phase, and `total`."""
    stopped: str = ""
    """The reason why the search ended."""
    time_limit: TimeLimit | None = None
    """The time limit that ended it, if one did."""
    untried: int = 0
    """Number of trials that failed twice for a reason that may lie outside the model. An identical run is not answered
    with this result but tries them again."""
    undecided: str = ""
    """The reason why measuring did not decide which model is the best; empty if it did."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Those of the notes that make the whole result doubtful; every account of the run shows them."""
    lacks_data: bool = False
    """True if lossy models were only compared on generated inputs."""
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    targets: tuple[PartResult, ...] = ()
    """For a run over several targets, the result for each. `baseline` is then the source model on the first target, and
    the counts cover all targets."""
    choice: ChosenTarget | None = None
    """For a run over several targets, the one with the model `best`."""
    parts: tuple[PartResult, ...] = ()
    """For a run over several models that belong together, the result for each, in the order in which they run. `best`
    and `baseline` are then the whole set; the counts cover all parts."""

    @property
    def is_interim(self) -> bool:
        """True if the run has not finished: this is the best of the trials so far."""
        return self.status in INTERIM

    @property
    def end(self) -> SearchEnd:
        return SearchEnd(self.stopped, self.time_limit)

    @property
    def better_model(self) -> ModelResult | None:
        """The best model, if it is another one than the source."""
        if self.best is None or self.best.is_source:
            return None
        return self.best

    @property
    def other_notes(self) -> tuple[str, ...]:
        """The notes that are no warnings."""
        return tuple(note for note in self.notes if note not in self.warnings)

    @property
    def models(self) -> tuple[ModelResult, ...]:
        """The source, the best model, the best lossy one and the rest of the front, each candidate once."""
        models = [self.baseline]
        if self.better_model is not None:
            models.append(self.better_model)
        if self.best_lossy is not None:
            models.append(self.best_lossy)
        keys = {model.candidate.key for model in models[1:]}
        for model in self.front:
            if not model.is_source and model.candidate.key not in keys:
                keys.add(model.candidate.key)
                models.append(model)
        return tuple(models)

    @property
    def part_results(self) -> tuple[RunResult, ...]:
        """The results for each of several targets or models; empty for one."""
        return (*(target.result for target in self.targets), *(part.result for part in self.parts))

    def to_json(self) -> dict[str, object]:
        """Convert to the document that `autoopt run --json` prints."""
        plain = replace(self, best=None, best_lossy=None, front=(), targets=(), choice=None, parts=())
        document: dict[str, object] = {"schema": SCHEMA, **json_codec.to_json(plain)}
        document["baseline"] = {name: json_codec.to_json(getattr(self.baseline, name)) for name in BASELINE}
        document["best"] = None if self.best is None else self.best.to_json()
        document["best_lossy"] = None if self.best_lossy is None else self.best_lossy.to_json()
        document["pareto"] = [model.to_json() for model in self.front]
        document["constraints"] = list(map(json_codec.without_nulls, map(asdict, self.constraints)))
        for name in ("targets", "choice", "parts"):
            del document[name]
        if self.targets:
            document["targets"] = [target.to_json() for target in self.targets]
            document["choice"] = json_codec.to_json(self.choice)
        if self.parts:
            document["parts"] = [part.to_json() for part in self.parts]
        return document

    @staticmethod
    def from_json(data: Json) -> RunResult:
        """Read a document; unknown fields of newer versions are ignored.

        Raises:
            JsonTypeError: a field has the wrong type.
        """
        document = dict(data)
        document["targets"] = list(map(PartResult.from_json, document.get("targets", ())))
        document["parts"] = list(map(PartResult.from_json, document.get("parts", ())))
        result = json_codec.from_json(RunResult, document)
        return replace(result, baseline=result.baseline.as_source)

    def as_reused(self, seconds: float) -> RunResult:
        """Return the same answer for an identical request: everything is reused, nothing was executed."""
        return replace(
            self,
            reused=True,
            pass_runs=WorkCounts(0, self.pass_runs.executed + self.pass_runs.reused),
            evaluations=WorkCounts(0, self.evaluations.executed + self.evaluations.reused),
            seconds={"total": round(seconds, 3)},
            targets=tuple(replace(target, result=target.result.as_reused(seconds)) for target in self.targets),
            parts=tuple(replace(part, result=part.result.as_reused(seconds)) for part in self.parts),
        )


@dataclass(frozen=True)
class PartResult:
    """The result for one part of a run: one of several targets, or one of several models that belong together."""

    name: str
    result: RunResult
    """The part's own search, `run` being its id."""
    target: Mapping[str, object] = field(default_factory=dict)
    """Of a target: device, execution provider, threads, memory, interpreter."""
    share: float = 1.0
    """Of a model: share of the set's time that it takes in the source set."""
    model: ModelResult = field(default_factory=ModelResult)
    """Of a model: the one that was chosen for the set, with the part's own figures; the source if none was. Of a target
    it has no chain."""

    def to_json(self) -> dict[str, object]:
        own: dict[str, object] = {"target": dict(self.target)}
        if self.model.chain:
            own = {"share": self.share, "chosen": self.model.to_json()}
        return {"name": self.name, **own, **self.result.to_json()}

    @staticmethod
    def from_json(data: Json) -> PartResult:
        model = json_codec.from_json(ModelResult, data.get("chosen") or {})
        target, share = data.get("target") or {}, data.get("share", 1.0)
        return PartResult(data["name"], RunResult.from_json(data), target, share, model)


@dataclass(frozen=True)
class ChosenTarget:
    """The target of this machine whose best model is the answer of a run over several."""

    name: str
    models: Mapping[str, ModelResult]
    """By target: its best model. If they were timed in turns, its latency and the ratio of that to the source model on
    the first target, as it runs now. The source model itself is left out there."""
