"""The request for a sweep, as the command line, Python and deployed flows state it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoopt.engine.run.session import Session
from autoopt.errors import InputError
from autoopt.observer import SILENT, Observer
from autoopt.problem.run_request import PoolRun, RunRequest
from autoopt.results import RunResult
from autoopt.spec import DagSpec
from autoopt.spec.proposal_options import names_model
from autoopt.store import SweepRecord
from autoopt.zoo.zoo_models import BareModel, ZooItem, ZooSource

SearchWith = Callable[[Session], RunResult]
"""Searches for a prepared run: in threads, or as flow runs."""
RESUMED_FIELDS = ("dag", "only", "nightly", "accept", "check")
"""Fields that a resumed sweep takes over from its record."""


@dataclass(frozen=True)
class SweepRequest:
    """One sweep. The fields without a description are those of `RunRequest`."""

    zoo: ZooSource
    dag: str | None = None
    """Overrides the zoo's default DAG; a DAG that a model names itself still applies."""
    only: str | None = None
    """Restricts the sweep to models with this tag."""
    resume: bool = False
    """Continues the last sweep of this zoo with the settings that it was started with."""
    or_begin: bool = False
    """With `resume`, starts a new sweep if none was interrupted."""
    flow_run: str = ""
    """Id of the Prefect flow run that executes the sweep; with `resume`, only its own sweep is continued."""
    nightly: bool = False
    """Measures every source model and every last best model again."""
    check: bool = False
    """Measures only the models of the last good sweep, and searches for nothing."""
    accept: bool = False
    """Makes this sweep the new baseline, regressions included."""
    until: float = math.inf
    """End of the sweep on `time.monotonic`; the zoo file sets it for nightly sweeps."""
    out: Path | None = None
    """Folder for the best models and the report."""
    data_root: str | Path | None = None
    home: Path | None = None
    workers: int = 2
    search: Mapping[str, Any] = field(default_factory=dict)
    in_pool: Callable[[RunRequest], PoolRun] | None = None
    observer: Observer = SILENT

    def settings(self) -> dict[str, object]:
        """The fields that the sweep's record keeps."""
        return {name: getattr(self, name) for name in RESUMED_FIELDS}

    def resuming(self, record: SweepRecord) -> SweepRequest:
        """The same request with the settings of the interrupted sweep.

        Raises:
            InputError: the request states a different setting.
        """
        settings: dict[str, Any] = {name: record.settings.get(name) for name in RESUMED_FIELDS}
        for name, value in settings.items():
            requested = getattr(self, name)
            if requested and requested != value:
                before = f"with {value}" if value else "without it"
                reason = f"the interrupted sweep was started {before}"
                raise InputError(reason, where=f"--{name}", remedy="omit this option to resume")
        return replace(self, **settings)

    def run_request(
        self, sweep: str, item: ZooItem, spec: DagSpec | BareModel, candidates: tuple[str, ...] = ()
    ) -> RunRequest:
        """The request for the run of one model, or of `candidates` in place of a search.

        Raises:
            InputError: there is no DAG, and none can be proposed for such a file.
        """
        return RunRequest(
            **_subject(item, spec),
            name=item.name,
            data_root=self.data_root,
            home=self.home,
            workers=self.workers,
            search={**item.entry.spec.search, **self.search},
            sweep=sweep,
            candidates=candidates,
            until=self.until,
            in_pool=self.in_pool,
            observer=self.observer,
        )


def _subject(item: ZooItem, spec: DagSpec | BareModel) -> dict[str, Any]:
    """The fields of a `RunRequest` for the model and its DAG."""
    if isinstance(spec, DagSpec):
        return {"dag": spec, "model": None if item.entry.spec.is_dag else item.path}
    if not names_model(item.path):
        remedy = "write dag: in the zoo file, or give --dag; autoopt init MODEL writes a DAG"
        raise InputError(
            "no DAG is named, and none can be proposed for such a file", where=item.shown_path, remedy=remedy
        )
    data = spec.data
    return {"dag": item.path, "data": data["evaluation"], "calibration": data["calibration"], "goal": spec.goal}
