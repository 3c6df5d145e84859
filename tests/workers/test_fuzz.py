"""Mutated models: each read in every way ends in exactly one outcome, and the pool continues."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mutants import mutants

from autoopt.outcome import Outcome
from autoopt.workers import WorkerPool

ENDS = {Outcome.OK, Outcome.REFUSED, Outcome.FAILED, Outcome.CRASHED, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}


def fuzz(count: int, seed: int, folder: Path) -> Counter[Outcome]:
    outcomes: Counter[Outcome] = Counter()
    with (
        WorkerPool(size=2, env={"PYTHONPATH": str(Path(__file__).parent.parent)}) as pool,
        ThreadPoolExecutor(2) as threads,
    ):

        def read(path: Path) -> Outcome:
            payload = {"path": str(path), "dest": str(path.with_suffix(""))}
            result = pool.call("jobs:read_every_way", payload, timeout=3.0, memory=1 << 30)
            assert (result.value is not None) == (result.outcome is Outcome.OK)
            assert bool(result.message) == (result.outcome is not Outcome.OK)
            assert result.message.isprintable()
            return result.outcome

        outcomes.update(threads.map(read, mutants(count, seed, folder)))
        assert pool.call("jobs:echo", {"still": "here"}).value == {"still": "here"}
    return outcomes


def test_five_hundred_mutants(tmp_path: Path) -> None:
    outcomes = fuzz(500, 1, tmp_path)
    assert sum(outcomes.values()) == 500
    assert set(outcomes) <= ENDS
    assert outcomes[Outcome.OK] > 250  # most mutants reach the readers, they are not refused at the door
    assert outcomes[Outcome.REFUSED] > 50


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_ten_thousand_mutants(seed: int, tmp_path: Path) -> None:
    outcomes = fuzz(500, seed, tmp_path)
    assert sum(outcomes.values()) == 500
    assert set(outcomes) <= ENDS
