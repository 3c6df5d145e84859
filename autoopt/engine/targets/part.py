"""One target's part of a run over several targets."""

from __future__ import annotations

from dataclasses import dataclass

from autoopt.engine.run.parts import RunPart
from autoopt.spec.targets import TargetSpec


@dataclass
class TargetPart(RunPart):
    """One target's part of a run."""

    @property
    def target(self) -> TargetSpec:
        return self.inputs.spec.all_targets[0]
