"""Results of trials, runs and sweeps: frozen records that the engine writes and every other package reads.

Start with `run.py`: `RunResult` is the document that `autoopt run --json` prints.
"""

from autoopt.results.measurement import MeasurementSummary, ProfileResult, ThroughputResult
from autoopt.results.model import SOURCE, Baseline, ModelResult, values_of
from autoopt.results.note import Note, NoteKind
from autoopt.results.run import ChosenTarget, PartResult, RunResult, TargetResult, WorkCounts
from autoopt.results.sweep import EntryComparison, MetricChange, SweepEntry, SweepResult
from autoopt.results.trial import IntermediateResult, Trial

__all__ = [
    "SOURCE",
    "Baseline",
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
    "TargetResult",
    "ThroughputResult",
    "Trial",
    "WorkCounts",
    "values_of",
]
