"""The worker's side of a remote call, with a real worker and a shared folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.orchestrate.hosts.remote_call import answer_call
from autoopt.outcome import Outcome
from autoopt.settings import settings
from autoopt.workers.exchange import CallBegun, Exchange, RemoteAnswer, RemoteCall


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(f"{tmp_path}/exchange/1")


@pytest.mark.parametrize("alone", [False, True])
def test_a_call_is_executed_and_its_answer_describes_the_machine(
    exchange: Exchange, tmp_path: Path, alone: bool
) -> None:
    exchange.write("c", RemoteCall("json:dumps", {"a": 1}, 60.0, alone=alone))
    assert answer_call("c", "exchange/1", str(tmp_path)) == "ok"
    answer = exchange.read("c", RemoteAnswer)
    assert answer is not None
    assert (answer.outcome, answer.value) == (Outcome.OK, '{"a": 1}')
    assert set(answer.machine) == {"cpu", "environment"}
    assert exchange.read("c", CallBegun)


def test_a_failure_arrives_with_its_error_as_fields(exchange: Exchange, tmp_path: Path) -> None:
    exchange.write("c", RemoteCall("autoopt.model.archive:unpack", {"source": "/no.zip", "dest": "/"}, 60.0))
    assert answer_call("c", "exchange/1", str(tmp_path)).startswith("failed ")
    answer = exchange.read("c", RemoteAnswer)
    assert answer is not None
    assert answer.outcome is Outcome.FAILED
    assert answer.error is not None
    assert answer.error.what


def test_a_call_that_is_not_there_is_refused(exchange: Exchange, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no call nowhere"):
        answer_call("nowhere", "exchange/1", str(tmp_path))


def test_without_a_folder_the_shared_artifacts_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOOPT_ARTIFACTS_URL", raising=False)
    settings.cache_clear()
    with pytest.raises(InputError, match="set AUTOOPT_ARTIFACTS_URL for the worker"):
        answer_call("c", "exchange/1", None)
    settings.cache_clear()
