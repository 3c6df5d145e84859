"""Results of trials, runs and sweeps: frozen records that the engine writes and every other room reads.

Start with `run.py`: `RunResult` is the document that `autoopt run --json` prints.
"""

from autoopt.results.run import Choice, RunResult, SingleBest, TargetResult
from autoopt.results.trial import TrialResult

__all__ = ["Choice", "RunResult", "SingleBest", "TargetResult", "TrialResult"]
