"""The end of a submitted run, as the command that follows it tells it."""

from __future__ import annotations

from uuid import uuid4

import pytest

pytest.importorskip("prefect")

from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Cancelled, Crashed, Failed

from autoopt.errors import InputError, SystemFailure
from autoopt.observer import SILENT
from autoopt.orchestrate.submitted import result_of_flow_run


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (Failed(message="no such file"), InputError),
        (Crashed(message="killed"), SystemFailure),
        (Cancelled(), KeyboardInterrupt),
    ],
)
def test_a_run_without_a_result_ends_as_it_would_have_ended_here(state: State, error: type[BaseException]) -> None:
    with pytest.raises(error):
        result_of_flow_run(FlowRun(flow_id=uuid4(), state=state), None, 0.0, SILENT)
