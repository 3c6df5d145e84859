"""Names and tags of flow runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from autoopt.engine.run.session import Session


def flow_run_name(text: str) -> str:
    """`text` fit for a flow run's name."""
    return re.sub(r"[{}]", "", text)


def model_run_name(dag: Any, model: Any) -> str:
    """`model · dag`, from what a flow was asked for."""
    shown = Path(str(model)).absolute() if model else None
    name = (shown.parent.name if shown.stem == "model" and shown.parent.name else shown.name) if shown else "model"
    graph = Path(dag).stem if isinstance(dag, str) else str((dag or {}).get("name", "dag"))
    return flow_run_name(f"{name} · {graph}")


def tags_of(session: Session) -> list[str]:
    """Tags of the flow runs of a run: model, DAG, target, and the run's id in the store."""
    ctx = session.ctx
    tags = (f"model:{session.name}", f"dag:{ctx.plan.name}", f"target:{ctx.target.name}", f"run:{ctx.run}")
    return [flow_run_name(tag) for tag in tags]
