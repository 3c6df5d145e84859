"""The best model under a combination of what changed: the file, and the interpreter that it runs in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.opening import refuse_imported
from autoopt.engine.run.session import search_inline
from autoopt.engine.sweeps.bisection.environments import Environments
from autoopt.engine.sweeps.bisection.factors import Changes
from autoopt.engine.sweeps.entry import CALIBRATION, DAG, EVALUATION, GOAL, LATENCY, MODEL, input_digests
from autoopt.engine.work.environment import LIBRARIES
from autoopt.engine.work.restore import ReplayEnvironment, check_scripts
from autoopt.errors import AutooptError, InputError
from autoopt.model.candidate import Candidate
from autoopt.model.files import model_in
from autoopt.model.model_file import ModelFile
from autoopt.observer import SILENT, Observer
from autoopt.passes.request import PassStep
from autoopt.registry import registry
from autoopt.results import SweepEntry
from autoopt.results.bisection import Factor
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.data import DataSpec
from autoopt.spec.proposal_options import names_model
from autoopt.store import RunRecord, Store
from autoopt.workers import WorkerPool

CHOICE: Final = "best model"
"""Name of the factor of two nights that chose different models although nothing that makes models changed."""
RUNTIME: Final[tuple[str, ...]] = ("numpy", "onnxruntime")
"""Libraries that a model runs with."""
DATA_OF: Final = {EVALUATION: "evaluation", CALIBRATION: "calibration", LATENCY: "latency"}
"""Field of `data:` by the name of the input."""
SHORT: Final = 8
"""Digits of the digest that stands for a model."""


LEAST_MINUTES: Final = 0.1
"""Time of a search when the budget is over."""


@dataclass(frozen=True)
class Budget:
    """The limits of a bisection, and the store and the observer of its searches."""

    minutes: float = 5.0
    home: Path | None = None
    db_url: str | None = None
    observer: Observer = SILENT


class NotMade(AutooptError):
    """The model of a combination cannot be made."""


@dataclass(frozen=True)
class NightModel:
    """The best model of one night."""

    sweep: str
    """Id; empty for a release of a run that no sweep made."""
    entry: SweepEntry
    run: RunRecord

    @staticmethod
    def of(store: Store, sweep: str, entry: SweepEntry) -> NightModel:
        """Read the run behind an entry.

        Raises:
            InputError: There is no best model, or it is several, or its run was imported or measured on another host.
        """
        if entry.best is None:
            reason = f"{entry.name} has no best model in sweep {sweep} ({entry.status})"
            raise InputError(reason, where="MODEL", remedy="only latencies of two models can be compared")
        if entry.result is not None and entry.result.parts:
            reason, remedy = f"{entry.name} is several models", "list one of them in the zoo by itself"
            raise InputError(reason, where="MODEL", remedy=remedy)
        if entry.environment.get("hosts"):
            raise InputError(f"{entry.name} was measured on another host than this machine", where="MODEL")
        run = store.runs.get(entry.run)
        refuse_imported(run)
        return NightModel(sweep, entry, run)

    @property
    def candidate(self) -> Candidate:
        assert self.entry.best is not None, "checked by `of`"
        return self.entry.best.candidate


@dataclass(frozen=True)
class VariantModel:
    """A model, and the interpreter that it runs in."""

    file: ModelFile
    python: str
    runtime: Mapping[str, str]
    """Versions of `RUNTIME`."""

    def same_as(self, other: VariantModel) -> bool:
        """True if nothing can make the two differ in speed."""
        return dict(self.runtime) == dict(other.runtime) and self.file.same_as(other.file)


@dataclass
class Variants:
    """Makes the model of each combination of factors; each at most once."""

    store: Store
    before: NightModel
    after: NightModel
    changes: Changes
    scratch: Path
    environments: Environments
    budget: Budget
    until: float
    """End of the budget on `time.monotonic`."""
    _files: dict[frozenset[str], ModelFile] = field(default_factory=dict)

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """The factors that are varied."""
        factors = self.changes.libraries + self.changes.inputs
        old, new = self.before.candidate, self.after.candidate
        if not self._making and old.key != new.key:
            return *factors, Factor(CHOICE, old.artifact[:SHORT], new.artifact[:SHORT])
        return factors

    @cached_property
    def _making(self) -> frozenset[str]:
        """Names of the factors, known ones apart from `CHOICE`, that may change the bytes of the best model."""
        used: set[str] = set()
        for step in self._steps:
            used.update(_libraries_of(step.pass_name))
        libraries = {factor.name for factor in self.changes.libraries if factor.name in used}
        return frozenset(libraries | {factor.name for factor in self.changes.inputs})

    @cached_property
    def _steps(self) -> tuple[PassStep, ...]:
        """The passes that made the earlier model."""
        lineage = self.store.lineage.trace(self.before.candidate)
        return tuple(PassStep(step.pass_name, step.params) for step in lineage.steps)

    def model(self, changed: frozenset[str]) -> VariantModel:
        """Make the model with these factors as in the later night and all others as in the earlier one.

        Raises:
            NotMade: It cannot be made.
            SystemFailure: An environment cannot be made.
        """
        return self._in_runtime(self._file(changed), changed)

    def source(self, night: NightModel) -> VariantModel:
        """The source of a night, in the runtime of that night."""
        changed: frozenset[str] = frozenset()
        if night is self.after:
            changed = frozenset(factor.name for factor in self.factors)
        return self._in_runtime(self._stored(Candidate(night.run.model)), changed)

    def _in_runtime(self, file: ModelFile, changed: frozenset[str]) -> VariantModel:
        """A model in the runtime of a combination."""
        libraries = self._libraries(changed)
        runtime = {name: libraries[name] for name in RUNTIME if name in libraries}
        return VariantModel(file, self.environments.python(runtime), runtime)

    def _libraries(self, changed: frozenset[str]) -> dict[str, str]:
        """The versions of the changed libraries in a combination."""
        versions = {}
        for factor in self.changes.libraries:
            versions[factor.name] = factor.before
            if factor.name in changed:
                versions[factor.name] = factor.after
        return versions

    def _file(self, changed: frozenset[str]) -> ModelFile:
        making = changed & (self._making | {CHOICE})
        everything = {factor.name for factor in self.factors} & (self._making | {CHOICE})
        if not making:
            return self._stored(self.before.candidate)
        if making == everything:
            return self._stored(self.after.candidate)
        if making not in self._files:
            self._files[making] = self._made(making)
        return self._files[making]

    def _stored(self, candidate: Candidate) -> ModelFile:
        return ModelFile(str(self.store.artifacts.path(candidate.artifact)), candidate.session_options)

    def _made(self, making: frozenset[str]) -> ModelFile:
        inputs = {factor.name for factor in self.changes.inputs}
        if not making & inputs:
            return self._replayed(self._libraries(making))
        if making - inputs:
            raise NotMade("libraries and inputs are not varied together")
        return self._searched(making)

    def _replayed(self, libraries: Mapping[str, str]) -> ModelFile:
        """Run the passes of the earlier model with these versions of libraries."""
        document = self.before.run.settings.get("replay_environment") or {}
        check_scripts(document, f"run {self.before.run.id}", allowed=True)
        python = self.environments.python(libraries)
        source = self.store.artifacts.path(self.before.run.model)
        with WorkerPool(size=1, python=python, lend=True) as pool:
            environment = ReplayEnvironment.from_json(pool, self.scratch, document)
            try:
                folder = environment.make(source, self._steps)
            except AutooptError as error:
                raise NotMade(str(error)) from None
        return ModelFile(str(model_in(folder)), self.before.candidate.session_options)

    def _searched(self, names: frozenset[str]) -> ModelFile:
        """Run the earlier night's request again, with these inputs as in the later one."""
        old = RunRequest.from_json(self.before.run.settings["request"])
        new = RunRequest.from_json(self.after.run.settings["request"])
        model = self.before.run.model
        if MODEL in names:
            model = self.after.run.model
        request = replace(
            mixed_request(old, new, names),
            model=self.store.artifacts.path(model),
            search={**old.search, "minutes": max(LEAST_MINUTES, (self.until - time.monotonic()) / 60)},
            home=self.budget.home,
            db_url=self.budget.db_url,
            observer=self.budget.observer,
        )
        with prepare(request) as session:
            # Files of data may have been overwritten since the nights.
            digests = input_digests(session.ctx)
            # A DAG that is proposed depends on what this machine has learned since.
            for name in (*DATA_OF, DAG) if names_model(request.dag) else DATA_OF:
                night = self.before
                if name in names:
                    night = self.after
                if digests[name] != night.entry.inputs[name]:
                    raise NotMade(f"the {name} of sweep {night.sweep} are gone")
            result = session.execute(search_inline)
        if result.best is None:
            raise NotMade(f"a search found no model that meets the constraints ({result.status})")
        return self._stored(result.best.candidate)


def _libraries_of(pass_name: str) -> Sequence[str]:
    """The libraries that a pass uses; all for a pass of a user script, which is not known here."""
    try:
        return registry().info(pass_name).libraries
    except InputError:
        return LIBRARIES


def mixed_request(old: RunRequest, new: RunRequest, names: frozenset[str]) -> RunRequest:
    """The old request with the DAG, data and goal of these names from the new one.

    Raises:
        NotMade: only one of them has a DAG.
    """
    if names_model(old.dag) != names_model(new.dag):
        raise NotMade("one night had a DAG, and for the other one was proposed")
    if not names_model(old.dag):
        return replace(old, dag=mixed_dag(load_dag(old.dag), load_dag(new.dag), names))
    goal = new.goal if GOAL in names else old.goal
    data = new.data if EVALUATION in names else old.data
    calibration = new.calibration if CALIBRATION in names else old.calibration
    return replace(old, goal=goal, data=data, calibration=calibration)


def mixed_dag(old: DagSpec, new: DagSpec, names: frozenset[str]) -> DagSpec:
    """Take the inputs with these names from the new DAG, all others from the old one."""
    base, goal = old, old
    if DAG in names:
        base = new
    if GOAL in names:
        goal = new
    data: dict[str, Any] = {}
    for name, which in DATA_OF.items():
        config = old.data_json(which)
        if name in names:
            config = new.data_json(which)
        if config is not None:
            data[which] = config
    changes: dict[str, object] = {"data": DataSpec.model_validate(data)}
    for section in ("objectives", "constraints"):
        changes[section] = getattr(goal, section)
    return base.model_copy(update=changes)
