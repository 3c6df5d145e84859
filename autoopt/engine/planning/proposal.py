"""Gather the facts for which `autoopt.dag.propose` writes a pass graph when a model comes without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from autoopt.dag import Facts
from autoopt.dag.compiler.requirements import Infos
from autoopt.dag.proposal.exclusions import ProposalInputs
from autoopt.dag.proposal.propose import Proposal, propose
from autoopt.dag.proposal.warm_start import Example, similarity
from autoopt.model.fetch import url_name
from autoopt.model.inspection import Inspection
from autoopt.settings import settings
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.store import RunRecord, Store, open_store


def model_name(path: str) -> str:
    """What a model is called: its file's name, or its folder's where the file is just `model.onnx`."""
    if "://" in path:  # nothing of host, user and query, which may be secrets
        name, folder = url_name(path), PurePosixPath(urlsplit(path.split("::")[0]).path).parent.name
    else:
        name, folder = Path(path).absolute().name, Path(path).absolute().parent.name
    return folder if PurePosixPath(name).stem == "model" and folder else name


def given_of(
    model: str, inspection: Inspection, described: Mapping[str, Any] | None, calibration: bool, wish: ProposalOptions
) -> ProposalInputs:
    """What a proposal is made for; `described`: the evaluation data, None where there is none."""
    return ProposalInputs(
        inspection=inspection,
        name=model_name(model),
        evaluation=described is not None,
        labels=bool(described and described.get("labels")),
        calibration=calibration,
        fidelity=wish.fidelity,
    )


def proposal_for(
    given: ProposalInputs, wish: ProposalOptions, infos: Infos, facts: Facts, store: Store | None
) -> Proposal:
    """The proposal, started from what the store remembers of similar models."""
    target = wish.target()
    taught = () if store is None else examples(store, given.inspection, target.execution_provider)
    return propose(wish, given, infos, facts, taught)


def existing_store() -> Store | None:
    """The store, where there is one already."""
    own = settings()
    return open_store(own.db_url, own.home) if own.db_url or (own.home / "autoopt.db").is_file() else None


def examples(store: Store, inspection: Inspection, provider: str) -> Sequence[Example]:
    """What finished runs on this provider preferred, for models like this one; the newest run of each model counts."""
    models = {m.artifact: m for m in store.models.all() if m.inspection}
    found: dict[str, Example] = {}
    for run in store.runs.all(status="finished"):
        record = models.get(run.model)
        if record is None or run.model in found or _provider(run) != provider:
            continue
        alike = similarity(inspection, Inspection.from_json(record.inspection))
        example = _example(run, record.name, alike)
        if example is not None:
            found[run.model] = example
    return tuple(found.values())


def _provider(run: RunRecord) -> str:
    replay_environment = run.settings.get("replay_environment") or {}
    return str((replay_environment.get("accelerator") or {}).get("execution_provider", "CPUExecutionProvider"))


def _example(run: RunRecord, model: str, alike: float) -> Example | None:
    """The best model of a run as an example; None where nothing was better than the source, or too little is kept."""
    best, nodes = (run.result or {}).get("best"), run.plan.get("nodes")
    first = next(iter(run.settings.get("objectives") or ()), None)
    if not best or not best.get("passes") or not nodes or first is None:
        return None
    ratio = (best.get("ratios") or {}).get(first["metric"])
    if ratio is None or not ratio["value"] > 0:
        return None
    value = float(ratio["value"]) if first["goal"] == "minimize" else 1 / float(ratio["value"])
    return Example(
        model=run.name.partition(" · ")[0] or model,
        similarity=alike,
        passes=frozenset(nodes[n] for n in best["passes"] if n in nodes),
        values={nodes[n]: dict(v) for n, v in (best.get("point") or {}).items() if n in nodes},
        ratio=value,
    )
