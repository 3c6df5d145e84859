"""The body of `nightly_sweep` outside of a flow run: only its refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from prefect.client.schemas.objects import StateType

from autoopt.orchestrate.flow_runs.sweep_run import Night, nightly


@pytest.mark.parametrize(
    ("text", "reason"), [(None, "zoo.yaml"), ("name: z\nmodls: []\n", "zoo.yaml:2: modls"), ("name: z\n", "models")]
)
def test_a_wrong_zoo_fails_the_flow_run_with_one_line(tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "zoo.yaml").write_text(text)
    state = nightly(Night(str(tmp_path / "zoo.yaml"), workers=1))
    assert state.type is StateType.FAILED
    assert state.message is not None
    assert reason in state.message
    assert "\n" not in state.message
