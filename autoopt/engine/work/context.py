"""A run under way: the problem, the resources of this process, and this attempt at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoopt.dag import pass_infos
from autoopt.dag.compiler.chain import Chain
from autoopt.engine.work.attempt import Attempt
from autoopt.model.candidate import Candidate
from autoopt.problem.problem import Problem
from autoopt.problem.resources import Resources
from autoopt.results import Trial
from autoopt.store import Store

GRACE_SHARE = 0.25
"""Largest share of the time that a part of the run leaves to the next one, which its last calls may use up."""


@dataclass(frozen=True)
class RunContext:
    """The three parts that the work of a run depends on."""

    problem: Problem
    resources: Resources
    attempt: Attempt

    @property
    def store(self) -> Store:
        return self.resources.store

    @property
    def chains(self) -> Mapping[str, Chain]:
        """The chains that are searched, by id."""
        return self.problem.plan.searched

    def is_lossy(self, trial: Trial) -> bool:
        """True if a pass of the trial's chain changes results on purpose."""
        chain = self.chains.get(trial.chain_id)
        if chain is not None:
            return chain.lossy
        # The trial is that of another run, whose plan had chains that this one lacks.
        plan = self.problem.plan
        own = {info.name: info for info in map(plan.pass_info, plan.spec.passes)}
        infos = pass_infos(self.problem.accelerator, own)
        runs = self.store.results.pass_runs(trial.pass_runs).values()
        return any(infos(run.pass_name).tolerance == "lossy" for run in runs)

    @property
    def run(self) -> str:
        """Id of the run."""
        return self.attempt.run

    def until(self, deadline: float) -> RunContext:
        """The same run with another deadline.

        Of the time between an earlier deadline and the run's own, calls that are under way may use up a quarter.
        """
        grace = self.attempt.grace
        if deadline < self.attempt.deadline:
            grace = min(grace, GRACE_SHARE * (self.attempt.deadline - deadline))
        return replace(self, attempt=replace(self.attempt, deadline=deadline, grace=grace))

    def model_path(self, candidate: Candidate) -> str:
        """Model file of a candidate, verified, for reading."""
        return str(self.store.artifacts.path(candidate.artifact))
