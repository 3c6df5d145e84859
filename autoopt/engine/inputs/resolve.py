"""What a request names, read and understood: spec, model, data, script, plan, goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autoopt.dag import Facts, Plan, compile_plan, pass_infos
from autoopt.engine.inputs.data_check import check_data
from autoopt.engine.inputs.goal import make_goal
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.inputs.sources import (
    admit,
    data_source,
    describe_data,
    describe_script,
    digest_script,
    local_script,
    providers,
)
from autoopt.engine.planning.proposal import given_of, proposal_for
from autoopt.engine.planning.spec_checks import check_supported
from autoopt.engine.work.context import DataSource, Goal
from autoopt.engine.work.environment import cpu
from autoopt.engine.work.keys import run_identity
from autoopt.engine.work.resources import Resources
from autoopt.errors import InputError
from autoopt.measure.settings import rounds_of
from autoopt.model.candidate import Candidate
from autoopt.model.inspection import Inspection
from autoopt.settings import root_of_data
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.proposal_options import names_model, refuse_proposal_options
from autoopt.spec.search import SearchConfig
from autoopt.target import Accelerator


@dataclass(frozen=True)
class ResolvedInputs:
    """What the user named, read and understood."""

    spec: DagSpec
    model: str
    source: Candidate
    inspection: Inspection
    evaluation: DataSource
    calibration: DataSource
    latency: DataSource
    script: Path | None
    script_digest: str
    accelerator: Accelerator
    plan: Plan
    goal: Goal
    notes: list[str]
    search: SearchConfig
    measurement: Mapping[str, Any]
    runtimes: Mapping[str, Mapping[str, Any]]
    """Versions and CPU of the hosts other than this interpreter, by name."""

    @property
    def identity(self) -> str:
        """The content key of the whole run."""
        own = {n: p for n, p in self.spec.passes.items() if p.objectives}
        where = self.spec.all_targets[0].where
        return run_identity(
            {
                "plan": self.plan.digest,
                "source": self.source.key,
                "data": [d.digest for d in (self.evaluation, self.calibration, self.latency)],
                "goal": [[asdict(o) for o in self.goal.objectives], [asdict(c) for c in self.goal.constraints]],
                "search": self.search.model_dump(),
                "target": self.spec.all_targets[0].target().content,
                **({"target host": where.model_dump()} if where.remote else {}),
                **({"runtimes": dict(self.runtimes)} if self.runtimes else {}),
                "script": self.script_digest,
                "evaluate": self.spec.evaluate,
                "node objectives": {n: [asdict(o.objective()) for o in p.objectives or ()] for n, p in own.items()},
                "measurement": dict(self.measurement),
            }
        )

    @property
    def why_pruned(self) -> str:
        """Reasons for which chains are left out."""
        return "; ".join(dict.fromkeys(p.reason for p in self.plan.pruned(3)))


def spec_of(request: RunRequest) -> DagSpec:
    """The DAG that a request names. For a bare model one that only says where it is and on what it is to run: the
    graph is proposed once the model is known.

    Raises:
        InputError: a DAG that is wrong or asks what cannot be done; a wish beside a DAG, which says such things itself.
    """
    if not names_model(request.dag):
        refuse_proposal_options(request.wish)
        spec = load_dag(request.dag).with_data_root(root_of_data(request.data_root))
        check_supported(spec)
        return spec if request.target is None else spec.for_target(request.target)
    if request.model is None and "://" not in str(request.dag) and not Path(request.dag).is_file():
        raise InputError("no such model file", where=str(request.dag))
    target = request.wish.target().model_dump(exclude={"name"})
    passes: dict[str, Any] = {"names": "name_fix"}
    return load_dag(
        {"name": "proposed", "model": str(request.dag), "target": target, "passes": passes, "chains": [["names"]]}
    )


def resolve_inputs(request: RunRequest, spec: DagSpec, resources: Resources) -> ResolvedInputs:
    """Read what the request names, and plan."""
    store, pool = resources.store, resources.pool
    measurement = {**spec.measurement, **dict(request.measurement)}
    rounds_of(measurement)
    model = str(request.model or spec.model_path or "")
    if not model:
        raise spec.error(("model",), "no model is named", "give --model, or write model: in the file")
    source, inspection = admit(store, pool, model, resources.scratch)
    cache = store.home / "downloads"
    evaluation = data_source(spec.data_json("evaluation") if request.data is None else request.data, cache)
    given = spec.data_json("calibration") if request.calibration is None else request.calibration
    calibration = data_source(given, cache) or evaluation
    script = local_script(spec.script_path, cache)
    target = spec.all_targets[0]
    there = resources.hosts.runtime_of(target.where)
    accelerator = target.accelerator(frozenset((there.get("cpu") or cpu())["flags"]))
    path = store.artifacts.path(source.artifact)
    described = describe_data(pool, evaluation, path)

    def oddities(data: DataSource, found: Mapping[str, Any] | None) -> list[str]:
        config = data.config or {}
        states = {**config.get("state", {}), **dict(measurement.get("state") or {})}
        where, named = str(config.get("path") or spec.source.file), "post_process" in config or script is not None
        return check_data(found, inspection, where, fed_back=set(states.values()), named=named)

    odd = oddities(evaluation, described)
    latency = data_source(spec.data_json("latency"), cache)
    for data in (calibration, latency):
        if data and data != evaluation:
            odd += oddities(data, {**(describe_data(pool, data, path) or {}), "label_text": None})
    passes, custom = describe_script(pool, script, accelerator)
    infos = pass_infos(accelerator, passes)
    facts = Facts(accelerator, inspection, providers(pool, target, there), has_calibration=bool(calibration))
    if names_model(request.dag):
        known = given_of(str(request.dag), inspection, described, bool(calibration), request.wish)
        proposal = proposal_for(known, request.wish, infos, facts, store)
        spec, plan = proposal.spec, proposal.plan(infos)
    else:
        plan = compile_plan(spec, infos, facts)
    objectives = [
        o.objective(custom[o.metric].direction if o.metric in custom else "maximize") for o in spec.objectives
    ]
    constraints = None if spec.constraints is None else [c.constraint() for c in spec.constraints]
    more = [o.metric for p in spec.passes.values() for o in p.objectives or ()]
    goal, notes = make_goal(objectives, constraints, described, custom, more)
    return ResolvedInputs(
        spec=spec,
        model=model,
        source=source,
        inspection=inspection,
        evaluation=evaluation,
        calibration=calibration,
        latency=latency,
        script=script,
        script_digest=digest_script(script),
        accelerator=accelerator,
        plan=plan,
        goal=goal,
        notes=[
            *plan.warnings,
            *dict.fromkeys(odd),
            *(f"{d.what}: {d.why}" for d in plan.decisions),
            *plan.learned,
            *notes,
        ],
        search=spec.search.config().overridden(request.search),
        measurement=measurement,
        runtimes=resources.hosts.runtimes_of(spec),
    )
