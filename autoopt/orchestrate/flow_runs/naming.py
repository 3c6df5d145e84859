"""Names, tags and final states of flow runs, and the name of the deployment that executes chains."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.engine.planning.proposal import model_name
from autoopt.engine.run.session import Session
from autoopt.errors import AutooptError
from autoopt.metrics import headline_metrics
from autoopt.report.words.figures import trial_figures
from autoopt.results import TrialResult
from autoopt.spec.zoo import load_zoo

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

MAX_TRIALS = 100
"""Trials in one flow run of a chain: the server handles some 20 task runs a second, and its pages show 200 rows."""
MAX_KEY = 100
"""Length from which the key of an artifact is cut off and ends with a digest."""
CHAIN_NAME: Final = "tune-chain"
EARLIER_NAME: Final = "autoopt"
"""Name that version 0.1.0 gave to its deployments."""


def flow_run_name(text: str) -> str:
    """Make `text` fit for a flow run's name, which Prefect formats like an f-string."""
    return re.sub(r"[{}]", "", text)


def session_run_name(session: Session) -> str:
    """`model · dag`, for one of several targets `model · dag · target`."""
    model, separator, target = session.name.partition(" · ")
    return flow_run_name(f"{model} · {session.ctx.problem.plan.name}{separator}{target}")


def model_run_name(dag: object, model: object) -> str:
    """`model · dag`, from the parameters of flow `optimize_model`."""
    name = "model"
    if model:
        name = model_name(str(model))
    graph: object = "dag"
    if isinstance(dag, str):
        graph = Path(dag).stem
    elif isinstance(dag, Mapping):
        graph = dag.get("name", graph)
    return flow_run_name(f"{name} · {graph}")


def zoo_title(zoo: object) -> str:
    """The name of a zoo, or that of its file if it cannot be read here."""
    try:
        return load_zoo(Path(str(zoo))).name
    except AutooptError:
        return Path(str(zoo)).stem


def night_name(zoo: object, only: object, due: datetime) -> str:
    """`production · cnn · 2026-11-22 02:00`: the zoo, the tag that it is restricted to, and when the night was due.

    The time is that of this machine's time zone.
    """
    parts = [zoo_title(zoo), f"{due.astimezone():%Y-%m-%d %H:%M}"]
    if only:
        parts.insert(1, str(only))
    return flow_run_name(" · ".join(parts))


def artifact_key(kind: str, *names: str) -> str:
    """Key of an artifact, which has a history of its own for each model or zoo: `result-cnn-quickstart`.

    Prefect allows lower-case letters, digits and dashes.
    """
    key = re.sub(r"[^a-z0-9]+", "-", " ".join((kind, *names)).lower()).strip("-")
    if len(key) <= MAX_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{key[:MAX_KEY].rstrip('-')}-{digest}"


def chain_run_name(chain: str, round_: int) -> str:
    """Readable name of the chain, with the number of its flow run after the first."""
    if round_ == 1:
        return chain
    return f"{chain} · round {round_}"


def tags_of(session: Session) -> list[str]:
    """Tags of the flow runs of a run: model, DAG, target, and the run's id in the store."""
    ctx = session.ctx
    tags = (
        f"model:{session.name}",
        f"dag:{ctx.problem.plan.name}",
        f"target:{ctx.problem.target.name}",
        f"run:{ctx.run}",
    )
    return list(map(flow_run_name, tags))


def headlines(session: Session) -> list[str]:
    """The metrics of the run's objectives and constraints."""
    goal = session.ctx.problem.goal
    return list(headline_metrics(goal.objectives, goal.constraints))


def trial_message(result: TrialResult, metrics: Sequence[str]) -> str:
    """A trial's outcome, its figures of these metrics, and the reason of a failure."""
    message = ", ".join([str(result.outcome), *trial_figures(result, metrics)])
    if result.explanation:
        message += f": {result.explanation}"
    return message


def trial_state(result: TrialResult, session: Session) -> State[None]:
    """The final state of a trial's task run."""
    return final_state(result.outcome.good, trial_message(result, headlines(session)))


def chain_end(results: Sequence[TrialResult], executed: int) -> tuple[bool, str]:
    """The success of a chain's flow run, which fails if all trials did, and its message."""
    good = sum(result.outcome.good for result in results)
    return good > 0, f"{good} of {len(results)} trials ok, {executed} executed now"


def chain_state(results: Sequence[TrialResult], executed: int) -> State[None]:
    """The final state of a chain's flow run."""
    return final_state(*chain_end(results, executed))


def final_state(success: bool, message: str) -> State[None]:
    """Completed, or Failed for a result that falls short."""
    # Imported only now: it reads its settings then, and `autoopt serve` sets them after it has imported this module.
    from prefect.states import Completed, Failed

    if success:
        return Completed(message=message)
    return Failed(message=message)


def chain_deployment() -> str:
    """Return the full name of the deployment, as this version or an earlier one made it on the server."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    current = f"tune_chain/{CHAIN_NAME}"
    with get_client(sync_client=True) as client:
        try:
            client.read_deployment_by_name(current)
        except ObjectNotFound:
            return f"tune_chain/{EARLIER_NAME}"
    return current
