"""The meters' settings by name, so that a typo is found before anything is measured. Light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from autoopt.errors import InputError

ROUNDS: Final = 5
"""How many separate measurements each of the best few gets, in turns: what a machine does changes within seconds, and
one measurement, however long, sees little of it."""
SETTINGS: Final[Mapping[str, str]] = {
    "seconds": "latency: time for one measurement, sessions and warm-up included (5)",
    "target_width": "latency: width of the interval of the p50 ratio, relative to it, that is narrow enough (0.04)",
    "replicas": "latency: sessions of each model, at most (8)",
    "rounds": "latency: how often the best few are measured again, in turns, before one is chosen (5); 0: not",
    "max_pairs": "latency: pairs of blocks, at most (4000)",
    "incumbent_ratio": "latency: p50 ratio of the best so far; what is surely slower stops early",
    "margin": "latency: how many times slower than the incumbent counts as slower (1.02)",
    "fixed": "latency: always use all the time (false)",
    "seed": "order of blocks and resampling (0)",
    "quiet_seconds": "latency: how long to wait, or to measure again, for the machine to be left alone (0.5)",
    "source_ms": "latency: p50 of the source when the machine was free; where it is slower now, measured again",
    "affinity": "latency: cores to run on",
    "batch_size": "items per inference (that of the data; else latency: 1, others: as many as the model allows)",
    "concurrency": "throughput: inferences at the same time in one session (1)",
    "throughput": "throughput: a list of {batch_size, concurrency} measured besides, into the details",
    "profiles": "latency: a list of {name, dimensions, shapes, weight}: sizes of dynamic shapes to be measured",
    "dimensions": "made-up inputs: size by name of symbolic dimension",
    "shapes": "made-up inputs: shape by name of input",
    "ranges": "made-up inputs: [low, high] by name of input",
    "state": "recurrent state: {output: input}",
    "reset_every": "recurrent state: items after which it starts again",
    "samples": "fidelity: items that are compared (64)",
    "task_output": "task metrics: name or number of the output that holds the predictions (the first)",
    "sequential": "task metrics: growing subsets until every constraint is told (false)",
    "constraints": "task metrics: the constraints that `sequential` tells",
}


def rounds_of(measurement: Mapping[str, Any]) -> int:
    """The setting `rounds`.

    Raises:
        InputError: it is no whole number from 0.
    """
    rounds = measurement.get("rounds", ROUNDS)
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 0:
        raise InputError(f"'rounds' must be a whole number from 0, not {rounds!r}", where="measurement")
    return rounds
