"""The worker's side of a remote call, with a real worker and a shared folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.orchestrate.hosts.remote_call import answer_call
from autoopt.outcome import Outcome
from autoopt.passes.request import RUN_PASSES
from autoopt.settings import settings
from autoopt.workers.exchange import CallBegun, Exchange, RemoteAnswer, RemoteCall
from autoopt.workers.hosts import RUNTIME


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(f"{tmp_path}/exchange/1")


@pytest.mark.parametrize("alone", [False, True])
def test_a_call_is_executed_and_its_answer_describes_the_machine(
    exchange: Exchange, tmp_path: Path, alone: bool
) -> None:
    exchange.write("c", RemoteCall(RUNTIME, {}, 60.0, alone=alone))
    assert answer_call("c", "exchange/1", str(tmp_path)) == "ok"
    answer = exchange.read("c", RemoteAnswer)
    assert answer is not None
    assert answer.outcome is Outcome.OK
    assert isinstance(answer.value, dict)
    assert answer.value["numpy"] == np.__version__
    assert set(answer.machine) == {"cpu", "environment"}
    assert exchange.read("c", CallBegun)


def test_a_failure_arrives_with_its_error_as_fields(exchange: Exchange, tmp_path: Path) -> None:
    exchange.write("c", RemoteCall(RUN_PASSES, {}, 60.0))
    assert answer_call("c", "exchange/1", str(tmp_path)).startswith("failed ")
    answer = exchange.read("c", RemoteAnswer)
    assert answer is not None
    assert answer.outcome is Outcome.FAILED
    assert answer.error is not None
    assert answer.error.what


@pytest.mark.parametrize("function", ["subprocess:run", "os:system", "autoopt.model.archive:unpack", "", ":", "x"])
def test_only_passes_and_measurements_are_called(function: str, exchange: Exchange, tmp_path: Path) -> None:
    written = str(tmp_path / "written")
    exchange.write("c", RemoteCall(function, {"touch": 1, written: 2}, 60.0))  # `run` takes the keys for a command
    assert "is no function that may be called from elsewhere" in answer_call("c", "exchange/1", str(tmp_path))
    answer = exchange.read("c", RemoteAnswer)
    assert answer is not None
    assert answer.outcome is Outcome.FAILED
    assert not Path(written).exists()


def test_a_call_that_is_not_there_is_refused(exchange: Exchange, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no call nowhere"):
        answer_call("nowhere", "exchange/1", str(tmp_path))


def test_without_a_folder_the_shared_artifacts_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOOPT_ARTIFACTS_URL", raising=False)
    settings.cache_clear()
    with pytest.raises(InputError, match="set AUTOOPT_ARTIFACTS_URL for the worker"):
        answer_call("c", "exchange/1", None)
    settings.cache_clear()
