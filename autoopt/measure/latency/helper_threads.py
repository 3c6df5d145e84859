"""Tell if a model gives work to helper threads, from how often they wake up in a session in which they do not spin.

A model whose operators are all too small to be shared out takes the same time on one thread as on several. Then its
CPU time tells what the clock would on a quiet machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from autoopt.measure.inference.runner import NO_SPINNING, resting
from autoopt.measure.latency import timing
from autoopt.measure.latency.subjects import SubjectOf
from autoopt.model.model_file import ModelFile

LONGEST: Final = 2e6
"""Time of an inference, in ns, from which some operator is large enough to be shared out."""
COUNTED: Final = 20e6
"""Time of the calls that count, in ns. As many before them let the helpers of other sessions fall asleep."""
# With fewer, a single wake-up by chance would be more than `RARE`.
FEWEST_CALLS: Final = 50
"""Calls that count at least."""
RARE: Final = 0.02
"""Waits of helper threads for each inference up to which the model wakes none: helpers of other sessions may fall
asleep meanwhile. Beside 17 runnable threads, ten models with operators that are shared out had 0.17 to 40 in blocks of
20 ms, three others none in twelve blocks each."""


def wakes_helpers(subject_of: SubjectOf, model: ModelFile, inference_ns: float) -> bool:
    """Tell if helper threads of a model get work; True if this cannot be counted, or surely so.

    `inference_ns` is the model's time, roughly.
    """
    if not timing.can_time_on_core() or inference_ns > LONGEST:
        return True
    call = subject_of(replace(model, session_options=resting(model.session_options, NO_SPINNING))).make(0)
    calls = max(FEWEST_CALLS, int(COUNTED / max(inference_ns, 1.0)))
    for _ in range(calls):
        call()
    before = timing.helper_waits()
    for _ in range(calls):
        call()
    return timing.helper_waits() - before > RARE * calls
