"""The parts of a run over several targets: those of this machine, and those of work pools."""

from __future__ import annotations

from dataclasses import dataclass

from autoopt.engine.run.parts import RunPart
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult
from autoopt.spec.targets import TargetSpec


@dataclass
class TargetPart(RunPart):
    """A target of this machine."""

    @property
    def target(self) -> TargetSpec:
        return self.problem.spec.all_targets[0]


@dataclass
class PoolPart:
    """A target of another machine, which executes its search as a run of its own in the same store."""

    name: str
    target: TargetSpec
    request: RunRequest
    result: RunResult | None = None
    """The result of its search, once that has ended."""
