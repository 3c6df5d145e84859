"""The trials and minutes that a model is worth: few where there is little to gain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoopt.dag.proposal.exclusions import NEURAL_OPS
from autoopt.dag.proposal.templates import MINUTES, TRIALS
from autoopt.model.inspection import Inspection

TINY_WEIGHTS: Final = 10_000
"""Weights of a model without convolutions below which an inference takes microseconds."""
FEW_TRIALS: Final = 6
FEW_MINUTES: Final = 2


@dataclass(frozen=True)
class Effort:
    """The budget of a search, and the reason if it is smaller than the level's."""

    trials: int
    minutes: int
    reason: str = ""


def effort_for(model: Inspection, level: int) -> Effort:
    """The budget for a model at a level."""
    trials, minutes = TRIALS[level], MINUTES[level]
    reason = ""
    if not model.ops & NEURAL_OPS:
        reason = "the model has no matrix product or convolution that a pass could make faster"
    elif model.parameters < TINY_WEIGHTS and not model.ops & {"Conv", "ConvTranspose"}:
        reason = f"the model has {model.parameters} weights; most of an inference is the call itself"
    if not reason:
        return Effort(trials, minutes)
    return Effort(min(trials, FEW_TRIALS), min(minutes, FEW_MINUTES), reason)
