"""What a user asks for: one run, as the command line, Python and deployed flows put it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.data import DataConfig
from autoopt.engine.work.hosts import Opener
from autoopt.engine.work.problem import Limits
from autoopt.engine.work.resources import ResourceOptions, Resources, open_resources
from autoopt.model.fetch import is_url, kept
from autoopt.observer import SILENT, Observer
from autoopt.settings import root_of_data, settings, without_password
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document
from autoopt.spec.proposal_options import ProposalOptions, names_model
from autoopt.spec.source import Source


@dataclass(frozen=True)
class RunRequest:
    """One run: a DAG (path, dict or spec) over a model; or a bare model (a path that ends in `.onnx`), for which
    autoopt proposes a graph as `wish` says.

    `model`, `data` (for evaluation) and `calibration` override those of the DAG; data is a path or a data config.
    `data_root`: what relative paths of data in the DAG start from (`AUTOOPT_DATA_ROOT`, else the DAG's folder).
    `search` overrides single fields of the DAG's `search:` section. `workers`: how many trials go on at once.
    `retry_failed`: what failed in earlier runs is tried again. `fresh`: do not answer from an identical finished run
    (reuse of work stays). `resume`: id of the interrupted run that this continues.
    `target`: only this one of the DAG's targets.
    """

    dag: Any
    model: str | Path | None = None
    data: Any = None
    calibration: Any = None
    data_root: str | Path | None = None
    home: Path | None = None
    db_url: str | None = None
    workers: int = 2
    search: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    measurement: Mapping[str, Any] = field(default_factory=dict)
    retry_failed: bool = False
    fresh: bool = False
    wish: ProposalOptions = field(default_factory=ProposalOptions)
    sweep: str | None = None
    resume: str | None = None
    target: str | None = None
    observer: Observer = SILENT
    opener: Opener | None = None
    """How hosts behind work pools are reached."""
    dag_file: str | None = None
    """Where `dag` was read from, if it was given as a path."""

    def read(self) -> RunRequest:
        """The same with its DAG read, so that changes of the file change nothing any more.

        Raises:
            ConfigError: the DAG is wrong.
        """
        if names_model(self.dag):
            return self
        file = _absolute(self.dag) if isinstance(self.dag, str | Path) else self.dag_file
        return replace(self, dag=load_dag(self.dag), dag_file=file)

    def open_resources(self, spec: DagSpec) -> Resources:
        """Open what the run works with on this machine; the caller closes it."""
        options = ResourceOptions(
            home=self.home,
            db_url=self.db_url,
            workers=self.workers,
            memory=self.limits.memory or spec.limits.memory,
            opener=self.opener,
            observer=self.observer,
        )
        return open_resources(options)

    def to_json(self) -> dict[str, Any]:
        """What processes in other folders need to go on with the same run: the DAG as it was read, absolute paths. A
        URL with a password or signature is not kept: the model is in the store, and in place of other URLs stands what
        they gave, in this machine's cache."""
        asked = self.read()
        cache = (self.home or settings().home) / "downloads"
        bare = names_model(asked.dag)
        given = asked.dag if bare else asked.dag.model_path
        return {
            "dag": _shown(_absolute(asked.dag)) if bare else _written(asked.dag.document, cache),
            "dag_file": asked.dag_file,
            "model": _shown(_absolute(self.model or given)),
            "data": _data(self.data, cache),
            "calibration": _data(self.calibration, cache),
            "data_root": root_of_data(self.data_root),
            "workers": self.workers,
            "search": dict(self.search),
            "limits": asdict(self.limits),
            "measurement": dict(self.measurement),
            "retry_failed": self.retry_failed,
            "wish": self.wish.to_json(),
            "target": self.target,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any], *, anew: bool = False) -> RunRequest:
        """The reverse of `to_json`. `anew`: the DAG is read from the file that it was given as, where that is still
        there."""
        dag, file = data["dag"], data.get("dag_file")
        if anew and file is not None and Path(file).is_file():
            dag = file
        elif isinstance(dag, Mapping) and "content" in dag:
            dag = Document(json.loads(dag["content"]), Source.from_json(dag["source"]))
        wish = ProposalOptions.from_json(data.get("wish", {}))
        return RunRequest(**{**data, "dag": dag, "limits": Limits(**data["limits"]), "wish": wish})


def _absolute(path: str | Path | None) -> str | None:
    if path is None or "://" in str(path):
        return None if path is None else str(path)
    return str(Path(path).absolute())


def _shown(path: str | None) -> str | None:
    return path if path is None or not is_url(path) else without_password(path)


def _written(document: Document, cache: Path) -> dict[str, Any]:
    """A DAG as JSON; as a text, in which its fields stay in order."""
    assert isinstance(document.value, dict)
    content = {k: v if k == "passes" else _without_secrets(v, cache) for k, v in document.value.items()}
    return {"content": json.dumps(content), "source": document.source.to_json()}


def _data(config: Any, cache: Path) -> Any:
    if config is None:
        return None
    return _without_secrets(DataConfig.parse(config).resolved(Path.cwd()).to_json(), cache)


def _without_secrets(value: Any, cache: Path) -> Any:
    """A JSON value, with what `cache` holds of them in place of the URLs that have secrets."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(item, cache) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item, cache) for item in value]
    if isinstance(value, str) and is_url(value) and without_password(value) != value:
        return str(kept(value, cache) or without_password(value))
    return value
