"""Gather the facts for which `autoopt.dag.proposal` writes a pass graph when a model comes without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from autoopt.dag import Facts
from autoopt.dag.compiler.requirements import Infos
from autoopt.dag.proposal.exclusions import ProposalInputs
from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.dag.proposal.propose import Proposal, propose
from autoopt.dag.proposal.warm_start import Example, similarity
from autoopt.engine.work.environment import cpu
from autoopt.model.fetch import url_name
from autoopt.model.inspection import Inspection
from autoopt.settings import settings
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import RunRecord, Store, open_store
from autoopt.target import DEFAULT_EP

if TYPE_CHECKING:
    from autoopt.data.description import DataDescription


MANY_CORES = 4
"""Cores from which on two threads are not all."""


def model_name(model: str) -> str:
    """The name of a model: its file's name, or its folder's name if the file is called `model`.

    Host, user and query of a URL are left out, because they may be secrets.
    """
    if "://" in model:
        name = url_name(model)
        folder = PurePosixPath(urlsplit(model.split("::")[0]).path).parent.name
    else:
        path = Path(model).absolute()
        name, folder = path.name, path.parent.name
    if PurePosixPath(name).stem == "model" and folder:
        return folder
    return name


def machine_options(options: ProposalOptions) -> ProposalOptions:
    """Complete the options of a proposal: on a CPU with several cores, threads that the user left open are searched."""
    cores = cpu()["cores"]
    if options.threads is not None or cores < 2 or options.target().device != "cpu":
        return options
    if cores < MANY_CORES:
        return replace(options, threads="1,all")
    return replace(options, threads="1,2,all")


def proposal_inputs(
    model: str,
    inspection: Inspection,
    description: DataDescription | None,
    has_calibration: bool,
    proposal_options: ProposalOptions,
    narrowing: Narrowing,
) -> ProposalInputs:
    """The facts that a proposal rests on; `description` is that of the evaluation data, None without data."""
    if proposal_options.keep_signature:
        narrowing = Narrowing()
    return ProposalInputs(
        inspection=inspection,
        name=model_name(model),
        evaluation=description is not None,
        labels=description is not None and description.labels,
        calibration=has_calibration,
        fidelity=proposal_options.fidelity is not False,
        narrowing=narrowing,
    )


def proposal_for(
    inputs: ProposalInputs, proposal_options: ProposalOptions, infos: Infos, facts: Facts, store: Store | None
) -> Proposal:
    """Propose a DAG, starting from the store's results for similar models."""
    taught: Sequence[Example] = ()
    if store is not None:
        taught = examples(store, inputs.inspection, proposal_options.target().execution_provider)
    return propose(proposal_options, inputs, infos, facts, taught)


def existing_store() -> AbstractContextManager[Store | None]:
    """Open the store if it exists; None otherwise."""
    configured = settings()
    if configured.db_url or (configured.home / "autoopt.db").is_file():
        return open_store(configured.db_url, configured.home)
    return nullcontext()


def examples(store: Store, inspection: Inspection, provider: str) -> Sequence[Example]:
    """The best results for similar models on this execution provider, one from the newest run of each model."""
    models = {model.artifact: model for model in store.models.all() if model.inspection}
    by_model: dict[str, Example] = {}
    for run in store.runs.all(status="finished"):
        model = models.get(run.model)
        if model is None or run.model in by_model or not run.teaches or _provider(run) != provider:
            continue
        example = _example(run, model.name, similarity(inspection, Inspection.from_json(model.inspection)))
        if example is not None:
            by_model[run.model] = example
    return tuple(by_model.values())


def _provider(run: RunRecord) -> str:
    environment = run.settings.get("replay_environment") or {}
    accelerator = environment.get("accelerator") or {}
    return str(accelerator.get("execution_provider", DEFAULT_EP["cpu"]))


def _example(run: RunRecord, model: str, alike: float) -> Example | None:
    """The best model of a run as an example; None if it is the source model or the run recorded too little.

    Reads the stored document itself, because runs of any earlier version count.
    """
    best = (run.result or {}).get("best") or {}
    nodes: Mapping[str, str] = run.plan.get("nodes", {})
    ratio = _recorded_ratio(run, best)
    passes = frozenset(nodes[node] for node in best.get("passes", ()) if node in nodes)
    if ratio is None or not passes:
        return None
    values = {}
    for node, params in best.get("point", {}).items():
        if node in nodes:
            values[nodes[node]] = dict(params)
    return Example(run.name.partition(" · ")[0] or model, alike, passes, values, ratio)


def _recorded_ratio(run: RunRecord, best: Mapping[str, Any]) -> float | None:
    """The ratio of the best model's first objective, below 1 if it is better; None if it was not recorded."""
    objectives = run.settings.get("objectives")
    if not objectives:
        return None
    estimate = (best.get("ratios") or {}).get(objectives[0]["metric"])
    if estimate is None or estimate["value"] <= 0:
        return None
    ratio = float(estimate["value"])
    if objectives[0]["goal"] == "maximize":
        return 1 / ratio
    return ratio
