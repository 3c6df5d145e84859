"""A simulated worker pool: models are small JSON files, passes and meters are functions of this process.

Everything above the pool is the real engine. `Simulation` builds a run's context over a store in memory.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.dag.compiler.chain import Chain
from autoopt.data.description import DataDescription
from autoopt.data.digest import digest
from autoopt.engine.run.early_warnings import CHECK_SOURCE
from autoopt.engine.run.export import STORE_INPUTS
from autoopt.engine.run.opening import open_session
from autoopt.engine.run.session import Session
from autoopt.engine.work.context import Attempt, RunContext
from autoopt.json_codec import from_json, to_json
from autoopt.measure.meters import EXECUTED_GRAPH_METER
from autoopt.measure.request import EXECUTED_GRAPH, SOURCE_GRAPH, WORK
from autoopt.measure.two_ratios import DETAIL, TwoRatios
from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_folder
from autoopt.model.inspection import Inspection
from autoopt.outcome import Cause, Outcome
from autoopt.passes.request import PassReply, PassRequest, StepReply
from autoopt.problem import reading as sources
from autoopt.problem.goal import GoalRequest, make_goal
from autoopt.problem.hosts import Hosts
from autoopt.problem.problem import DataSets, DataSource, Goal, Problem
from autoopt.problem.quarantine import Quarantine
from autoopt.problem.resources import Resources
from autoopt.problem.run_request import RunRequest
from autoopt.spec import load_dag
from autoopt.spec.search import SearchConfig
from autoopt.spec.targets import HostSpec
from autoopt.store import ModelRecord, RunRecord, open_store
from autoopt.target import Accelerator, Target
from autoopt.tuning import TIMING
from autoopt.workers import CallResult, Gate, WorkerPool

Model = dict[str, Any]
"""Latency in ms, size in bytes, accuracy, the names of the passes that changed it; and the executed graph, or half the
width of the intervals of its metrics, if known."""
SOURCE: Model = {"latency": 10.0, "size": 1000.0, "accuracy": 0.9, "passes": []}


class Crash(Exception):
    """Kills the simulated worker."""


class Kill(Exception):
    """Stands for a SIGKILL from outside."""


class Hang(Exception):
    """Keeps the simulated worker busy until its time limit."""


def faster(factor: float, **changes: float) -> Callable[[Model, Mapping[str, Any]], Model]:
    """A pass that multiplies the latency and sets other properties."""
    return lambda model, params: {**model, "latency": model["latency"] * factor, **changes}


def unchanged(model: Model, params: Mapping[str, Any]) -> Model:
    return model


def failing(model: Model, params: Mapping[str, Any]) -> Model:
    raise ValueError("cannot optimize this")


def crashing(model: Model, params: Mapping[str, Any]) -> Model:
    raise Crash


def killed(model: Model, params: Mapping[str, Any]) -> Model:
    raise Kill


def hanging(model: Model, params: Mapping[str, Any]) -> Model:
    raise Hang


class SimulatedPool(WorkerPool):
    """Executes passes and meters at once, in the caller's thread."""

    def __init__(self) -> None:
        super().__init__(size=1)
        self.passes: dict[str, Callable[[Model, Mapping[str, Any]], Model]] = {}
        self.noise: Callable[[Model], float] = lambda model: 1.0
        """Factor on a measured latency."""
        self.spread = 0.01
        """Relative half-width of the interval of a measured ratio."""
        self.disturbed = False
        self.on_one_thread = False
        """Latencies are also measured on one thread, as beside other programs."""
        self.passes_run: list[list[str]] = []
        """Names of the passes of each call."""
        self.reports: dict[str, dict[str, Any]] = {}
        """The report that a pass leaves, by its name."""
        self.reports_given: list[Mapping[str, Any]] = []
        """The reports that came with each call of passes."""
        self.measured: list[tuple[str, Mapping[str, Any]]] = []
        """Meter function and payload of each call."""
        self.limits: list[float | None] = []

    def call(
        self,
        function: str,
        payload: dict[str, Any],
        timeout: float | None = 60.0,
        memory: int | None = None,
        *,
        fresh: bool = False,
        until: float = math.inf,
    ) -> CallResult:
        self.limits.append(timeout)
        payload = json.loads(json.dumps(payload))
        if function == STORE_INPUTS:
            return CallResult(Outcome.REFUSED, message="simulated data")
        if function == CHECK_SOURCE:
            return CallResult(Outcome.OK, {"stops": [], "warnings": []})
        if function == EXECUTED_GRAPH_METER.function:
            return CallResult(Outcome.OK, _graphs(payload))
        try:
            if function == "autoopt.passes.runner:run":
                return CallResult(Outcome.OK, self._run_passes(from_json(PassRequest, payload)), seconds=0.1)
            return CallResult(Outcome.OK, self._measure(function, payload), seconds=0.2)
        except Crash:
            return CallResult(Outcome.CRASHED, message="the worker died: SIGSEGV", died=True)
        except Kill:
            return CallResult(Outcome.CRASHED, message="the worker died: SIGKILL", died=True, cause=Cause.MACHINE)
        except MemoryError:
            return CallResult(Outcome.OUT_OF_MEMORY, message="MemoryError")
        except Hang:
            return CallResult(Outcome.TIMEOUT, message=f"more than {timeout:.0f} s")

    def _run_passes(self, request: PassRequest) -> dict[str, object]:
        self.passes_run.append([step.pass_name for step in request.steps])
        self.reports_given.append(request.reports)
        model = read_model(Path(request.model.path))
        steps: list[StepReply] = []
        for index, step in enumerate(request.steps):
            request.record_step(index)
            try:
                changed = self.passes[step.pass_name](model, step.params)
            except ValueError as error:
                failed = StepReply(step.pass_name, Outcome.FAILED, step.params, step.node, message=str(error))
                steps.append(failed)
                break
            path, outcome = None, Outcome.UNCHANGED
            if changed != model:
                model = {**changed, "passes": [*model["passes"], step.pass_name]}
                path, outcome = write_model(model, request.output / str(index)).parent, Outcome.OK
            reply = StepReply(
                step.pass_name,
                outcome,
                step.params,
                step.node,
                session_options=request.model.session_options,
                path=path,
                reports=self.reports.get(step.pass_name, {}),
            )
            steps.append(reply)
        return to_json(PassReply(tuple(steps)))

    def _measure(self, function: str, payload: Mapping[str, Any]) -> dict[str, object]:
        self.measured.append((function, payload))
        source = read_model(Path(payload["source"]["path"]))
        files = [payload["candidate"], *payload.get("rivals", ())]
        replies = [self._reply(function, payload["metrics"], read_model(Path(f["path"])), source) for f in files]
        return {**replies[0], "rivals": replies[1:]}

    def _reply(self, function: str, metrics: Sequence[str], candidate: Model, source: Model) -> dict[str, object]:
        if candidate.get("dies in meter") == function:
            raise Crash
        if candidate.get("fills memory in meter") == function:
            raise MemoryError
        noise = self.noise(candidate) if function.endswith(":latency") else 1.0
        values = {name: _value(name, candidate) * (noise if "latency" in name else 1.0) for name in metrics}
        source_values = {name: _value(name, source) for name in metrics}
        ratios = {}
        if function.endswith(":latency"):
            ratios = {name: _interval(values[name] / source_values[name], self.spread) for name in values}
        if "size" in values:
            ratios["size"] = _exact(values["size"] / source_values["size"])
        details: dict[str, object] = {
            "disturbed": self.disturbed,
            "pairs": 10,
            EXECUTED_GRAPH: candidate.get("graph", ""),
        }
        if self.on_one_thread and "latency_p50" in ratios:
            ratio = from_json(Estimate, ratios["latency_p50"])
            by_clock = Estimate(ratio.value, ratio.value / 2, 2 * ratio.value)
            details[DETAIL] = to_json(TwoRatios(by_clock, on_one_thread_for(ratio)))
        return {
            "metrics": {name: _exact(value, candidate.get("spread", 0.0)) for name, value in values.items()},
            "source_metrics": {name: _exact(value) for name, value in source_values.items()},
            "ratios": ratios,
            "details": details,
        }

    def warm(self, modules: Sequence[str], workers: int | None = None) -> None:
        """There is no process to start."""

    def expect(self, modules: Sequence[str]) -> None:
        """The same."""

    @property
    def meters(self) -> list[str]:
        """Names of the meters that measured, in order."""
        return [function.partition(":")[2] for function, _ in self.measured]


INSPECTION = Inspection(
    inputs=(),
    outputs=(),
    opsets={"": 21},
    ir_version=10,
    op_counts={"Add": 1},
    parameters=0,
    bytes=9,
    layer_parameters={"Conv": 7},
)


class ReadingPool(SimulatedPool):
    """Reads models and data as the real worker functions do, and counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[str] = []
        self.answers: dict[str, Mapping[str, Any] | CallResult] = {
            sources.INSPECT: INSPECTION.to_json(),
        }

    def call(
        self,
        function: str,
        payload: dict[str, Any],
        timeout: float | None = 60.0,
        memory: int | None = None,
        *,
        fresh: bool = False,
        until: float = math.inf,
    ) -> CallResult:
        self.functions.append(function)
        if function == sources.ADMIT:
            copy = Path(payload["dest"], "model.onnx")
            copy.write_bytes(Path(payload["source"]).read_bytes())
            answer = {"digest": digest_folder(copy.parent), "repairs": []}
            return CallResult(Outcome.OK, answer)
        if function not in self.answers:
            return super().call(function, payload, timeout, memory, fresh=fresh, until=until)
        answer = self.answers[function]
        if isinstance(answer, CallResult):
            return answer
        return CallResult(Outcome.OK, dict(answer))


def written_data(folder: Path, content: bytes = b"items", **config: object) -> DataSource:
    """A data set in the file `d.npz` of a folder."""
    path = folder / "d.npz"
    path.write_bytes(content)
    config = {"path": str(path), **config}
    return DataSource(config, digest(config))


def _graphs(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The reply to a request for the executed graphs; a model that names none has none that is known."""
    candidate, source = (read_model(Path(payload[side]["path"])) for side in ("candidate", "source"))
    details = {EXECUTED_GRAPH: candidate.get("graph", ""), SOURCE_GRAPH: source.get("graph", "")}
    return {"details": {**details, WORK: candidate.get("work", "")}}


def _value(name: str, model: Model) -> float:
    if name.startswith("latency"):
        return float(model["latency"])
    if name == "throughput":
        return 1000 / float(model["latency"])
    return float(model.get(name, 1.0))


def _exact(value: float, spread: float = 0.0) -> dict[str, float]:
    return {"value": value, "low": value - spread, "high": value + spread}


def _interval(value: float, spread: float) -> dict[str, float]:
    return {"value": value, "low": value / (1 + spread), "high": value * (1 + spread)}


def estimate(value: float) -> Estimate:
    return Estimate(value, value / 1.01, value * 1.01)


def read_model(path: Path) -> Model:
    model: Model = json.loads(path.read_text())
    return model


def write_model(model: Model, folder: Path) -> Path:
    folder.mkdir(parents=True)
    file = folder / "model.onnx"
    file.write_text(json.dumps(model))
    return file


DEFAULT_DAG: dict[str, Any] = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused"},
    "chains": [["fold", "clean"]],
}


@dataclass
class Clock:
    """A clock that only moves when told to."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Simulation:
    """A run over a simulated pool."""

    folder: Path
    dag: Mapping[str, Any] = field(default_factory=lambda: DEFAULT_DAG)
    objectives: tuple[Objective, ...] = (Objective("latency_p50", "minimize"),)
    constraints: tuple[Constraint, ...] | None = None
    measurement: Mapping[str, Any] = field(default_factory=lambda: {"rounds": 2})
    source: Model = field(default_factory=lambda: dict(SOURCE))
    unverified: bool = False
    store: Any = None
    """An existing store to share; by default a new one."""

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.pool = SimulatedPool()
        self.pool.passes = {"identity_elimination": faster(0.5), "remove_unused": faster(0.8, size=900.0)}
        self.store = self.store or open_store(None, self.folder / "home")
        self.compile()
        gate, scratch = self.folder / "gate", self.folder / "scratch"
        gate.mkdir(parents=True)
        scratch.mkdir()
        self.resources = Resources(self.store, self.pool, Hosts(self.pool), Gate(gate), Quarantine(self.store), scratch)
        artifact = self.store.artifacts.put(write_model(self.source, self.folder / "source").parent)
        self.store.models.add(ModelRecord(artifact, "source"))
        self.candidate = Candidate(artifact)

    def compile(self) -> None:
        """Plan, with the files that parameters name as they are now."""
        facts = Facts(Accelerator(), has_calibration=True)
        self.plan: Plan = compile_plan(load_dag({"name": "t", **self.dag}), pass_infos(Accelerator()), facts)

    @property
    def goal(self) -> Goal:
        request = GoalRequest(self.objectives, self.constraints)
        return make_goal(request, DataDescription(labels=True, label_kind="class"))[0]

    @property
    def problem(self) -> Problem:
        return Problem(
            plan=self.plan,
            source=self.candidate,
            goal=self.goal,
            target=Target(),
            host=HostSpec(),
            accelerator=Accelerator(),
            data=DataSets(evaluation=written_data(self.folder)),
            measurement=self.measurement,
            unverified=self.unverified,
        )

    def context(self, **attempt: Any) -> RunContext:
        """The context of a new run."""
        record = self.store.runs.create(RunRecord(id="", name="t", identity="i", model=self.candidate.artifact))
        attempt = {"run": record.id, "clock": self.clock, **attempt}
        return RunContext(self.problem, self.resources, Attempt(**attempt))

    def asked(self, **search: Any) -> Problem:
        """The problem with the search and the model of a request."""
        return replace(self.problem, search=SearchConfig.model_validate(search), model="source.onnx")

    def session(self, *, search: Mapping[str, Any] | None = None, **request: Any) -> Session:
        """Open a session of a request."""
        run_request = RunRequest(**{"dag": self.plan.spec, "home": self.folder / "home", "workers": 1, **request})
        return open_session(run_request, self.asked(**(search or {})), self.resources, time.monotonic())

    @property
    def chains(self) -> dict[str, Chain]:
        return {chain.id: chain for chain in self.plan.chains(100)}

    @property
    def chain(self) -> Chain:
        return next(iter(self.chains.values()))

    def model(self, candidate: Candidate) -> Model:
        """The simulated model of a candidate."""
        return read_model(self.store.artifacts.path(candidate.artifact))


def on_one_thread_for(ratio: Estimate) -> Estimate:
    """The ratio on one thread that lets expect this one on several."""
    if ratio.value >= 1:
        return ratio
    low, value, high = (limit ** (1 / TIMING.shared_gain) for limit in (ratio.low, ratio.value, ratio.high))
    return Estimate(value, low, high)
