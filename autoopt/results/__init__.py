"""Results of trials, runs and sweeps: frozen records that the engine writes and every other package reads.

Start with `run.py`: `RunResult` is the document that `autoopt run --json` prints.
"""

from autoopt.results.model import (
    SOURCE,
    MeasurementSummary,
    ModelResult,
    ProfileResult,
    ThroughputResult,
    source_result,
    values_of,
)
from autoopt.results.run import ChosenTarget, Note, NoteKind, PartResult, RunResult, WorkCounts
from autoopt.results.sweep import EntryComparison, MetricChange, SweepEntry, SweepResult
from autoopt.results.trial import IntermediateResult, Trial

__all__ = [
    "SOURCE",
    "ChosenTarget",
    "EntryComparison",
    "IntermediateResult",
    "MeasurementSummary",
    "MetricChange",
    "ModelResult",
    "Note",
    "NoteKind",
    "PartResult",
    "ProfileResult",
    "RunResult",
    "SweepEntry",
    "SweepResult",
    "ThroughputResult",
    "Trial",
    "WorkCounts",
    "source_result",
    "values_of",
]
