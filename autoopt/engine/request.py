"""What a user asks for: one run, as the command line, Python and deployed flows put it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autoopt.engine.context import Limits, Listener, silent
from autoopt.engine.hosts import Opener
from autoopt.model.fetch import is_url, kept, local
from autoopt.settings import root_of_data, settings, without_password
from autoopt.spec.wish import Wish


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
    wish: Wish = field(default_factory=Wish)
    sweep: str | None = None
    resume: str | None = None
    target: str | None = None
    listener: Listener = silent
    opener: Opener | None = None
    """How hosts behind work pools are reached."""

    def to_json(self) -> dict[str, Any]:
        """What a resumed run needs to be the same run; paths are absolute, a DAG made in Python is kept whole. URLs,
        which may hold passwords and signatures, are not: `resume` takes the model from the store, and what else was
        fetched from the cache."""
        cache = (self.home or settings().home) / "downloads"

        def plain(value: Any) -> Any:
            return local(_absolute(value) if isinstance(value, str | Path) else value, cache, kept)

        return {
            "dag": plain(_plain_dag(self.dag)),
            "model": without_password(str(self.model)) if is_url(str(self.model)) else _absolute(self.model),
            "data": plain(self.data),
            "calibration": plain(self.calibration),
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
    def from_json(data: Mapping[str, Any]) -> RunRequest:
        """The reverse of `to_json`."""
        wish = Wish.from_json(data.get("wish", {}))
        return RunRequest(**{**data, "limits": Limits(**data["limits"]), "wish": wish})


def _absolute(path: str | Path | None) -> str | None:
    if path is None or "://" in str(path):
        return None if path is None else str(path)
    return str(Path(path).absolute())


def _plain_dag(dag: Any) -> Any:
    if isinstance(dag, str | Path):
        return _absolute(dag)
    return dag if isinstance(dag, Mapping) else dag.model_dump(mode="json", by_alias=True, exclude_unset=True)
