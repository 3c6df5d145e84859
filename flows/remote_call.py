"""Flow `remote_call`: one pass run or measurement of a run elsewhere, on the machine of a work pool's worker."""

from __future__ import annotations

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from autoopt.orchestrate.remote import carry_out


@flow(name="remote_call")
def remote_call(call: str, place: str, folder: str | None = None) -> State[None]:
    """Carry out a call that was left in the exchange.

    Args:
        call: its id.
        place: where the exchange is below `folder`.
        folder: a folder that both machines reach; nothing where AUTOOPT_ARTIFACTS_URL is that.
    """
    return Completed(message=carry_out(call, place, folder))
