"""Names and tags of deployments and flow runs, and keys of artifacts."""

from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from autoopt.engine.run.session import Session
from autoopt.errors import AutooptError
from autoopt.problem.run_request import model_name
from autoopt.settings import settings, without_password
from autoopt.spec.zoo import load_zoo

TAG: Final = "autoopt"
"""Tag of all flow runs of autoopt."""
MAX_KEY: Final = 100
"""Length from which the key of an artifact is cut off and ends with a digest."""


@dataclass(frozen=True)
class Place:
    """The host or pool that executes flow runs of deployments: a part of their names, and their tags."""

    name: str
    tags: tuple[str, ...]
    pool: str | None = None

    @staticmethod
    def here() -> Place:
        """This host, with the store that this process uses."""
        host, known = socket.gethostname(), settings()
        address = f"{known.home.resolve()}\n{without_password(known.db_url or '')}"
        store = hashlib.sha256(address.encode()).hexdigest()[:6]
        return Place(f"{host}-{store}", (f"host:{host}", f"store:{store}"))

    @staticmethod
    def in_pool(pool: str) -> Place:
        """The machines whose workers take flow runs from a work pool."""
        return Place(pool, (f"pool:{pool}",), pool)


def plain(text: str) -> str:
    """Make `text` fit for a flow run's name, which Prefect formats like an f-string."""
    return re.sub(r"[{}]", "", text)


def run_name(session: Session) -> str:
    """`model · dag`, for one of several targets `model · dag · target`."""
    model, separator, target = session.name.partition(" · ")
    return plain(f"{model} · {session.ctx.problem.plan.name}{separator}{target}")


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
    return plain(f"{name} · {graph}")


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
    return plain(" · ".join(parts))


def tags_of(session: Session) -> list[str]:
    """Tags of the flow runs of a run: model, DAG, target, and the run's id in the store."""
    ctx = session.ctx
    of_run = (
        f"model:{session.name}",
        f"dag:{ctx.problem.plan.name}",
        f"target:{ctx.problem.target.name}",
        f"run:{ctx.run}",
    )
    return [TAG, *map(plain, of_run)]


def artifact_key(kind: str, *names: str) -> str:
    """Key of an artifact, which has a history of its own for each model or zoo: `result-cnn-quickstart`.

    Prefect allows lower-case letters, digits and dashes.
    """
    key = re.sub(r"[^a-z0-9]+", "-", " ".join((kind, *names)).lower()).strip("-")
    if len(key) <= MAX_KEY:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{key[:MAX_KEY].rstrip('-')}-{digest}"
