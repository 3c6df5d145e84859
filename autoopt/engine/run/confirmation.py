"""Confirm the known best of a model with the same graph: if the first trials repeat it, there is nothing to search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autoopt.dag.compiler.plan import Learned
from autoopt.engine.run.trial import CompletedTrial
from autoopt.metrics import Objective
from autoopt.space import matches

TOLERANCE: Final = 0.1
"""Relative difference from the expected ratio that counts as the same: the width to which trials are measured."""


@dataclass(frozen=True)
class Confirmation:
    """The findings of an earlier search of the same chains on a model that differs only in its weights."""

    learned: Sequence[Learned]
    objective: Objective
    """The first objective of the run."""

    @property
    def is_expected(self) -> bool:
        """True if an earlier search says what the first trial should reach."""
        return any(preference.expected is not None for preference in self.learned)

    def reason(self, trial: CompletedTrial) -> str:
        """Say why a trial ends the search; nothing if it does not."""
        for preference in self.learned:
            if preference.expected is not None and self._repeats(trial, preference, preference.expected):
                return f"the best known of the same graph is confirmed: {preference.expected:.2f} was expected"
        return ""

    def _repeats(self, trial: CompletedTrial, preference: Learned, expected: float) -> bool:
        """True if the trial is the preferred one, meets the constraints, and gains about what was expected."""
        ratio = trial.result.ratios.get(self.objective.metric)
        if ratio is None or not trial.result.feasible or not _is_preferred(trial, preference):
            return False
        if not ratio.is_gain(self.objective.goal):
            return False
        gain = 1 / ratio.value if self.objective.goal == "maximize" else ratio.value
        return gain <= expected * (1 + TOLERANCE)


def _is_preferred(trial: CompletedTrial, preference: Learned) -> bool:
    if trial.partial or trial.chain.passes != preference.chain:
        return False
    points = preference.points
    return not points or any(matches(trial.result.point, values) for values in points)
