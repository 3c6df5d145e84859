"""The body of `tune_chain` outside of a flow run: only its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.schemas.objects import StateType

from autoopt.orchestrate.flow_runs.chain_run import tune
from autoopt.settings import settings


def test_an_unknown_run_fails_the_flow_run_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path))
    settings.cache_clear()
    state = tune("0123456789ab", "c" * 12)
    settings.cache_clear()
    assert state.type is StateType.FAILED
    assert state.message is not None
    assert "0123456789ab" in state.message
