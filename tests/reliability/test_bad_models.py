"""Models that kill whoever takes them in."""

from __future__ import annotations

from pathlib import Path

import builders
import pytest

from autoopt.errors import InputError
from autoopt.problem import admission as sources
from autoopt.problem.hosts import Hosts
from autoopt.problem.quarantine import Quarantine
from autoopt.problem.resources import Resources
from autoopt.store import open_store
from autoopt.workers import Gate, WorkerPool

TESTS = str(Path(__file__).parent.parent)


@pytest.mark.parametrize("which", ["ADMIT", "INSPECT"])
def test_a_model_that_kills_twice_while_it_is_taken_in_is_not_read_a_third_time(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = builders.write(builders.mlp(), tmp_path / "in")
    monkeypatch.setattr(sources, which, "jobs:die")
    with open_store(None, tmp_path / "home") as store, WorkerPool(size=1, env={"PYTHONPATH": TESTS}) as pool:
        with_pool = Resources(store, pool, Hosts(pool), Gate(), Quarantine(store), tmp_path)
        said = []
        for _ in range(3):
            with pytest.raises(InputError) as error:
                sources.admit(with_pool, model)
            said.append(str(error.value))
        assert "quarantined" not in said[0] + said[1]
        assert "is quarantined: it killed its worker 2 times" in said[2]
        assert len(store.deaths.all()) == 2
        monkeypatch.undo()
        with pytest.raises(InputError, match="quarantined"):
            sources.admit(with_pool, model)
        other = builders.write(builders.mlp(seed=3), tmp_path / "other")
        assert sources.admit(with_pool, other)[1].op_counts
