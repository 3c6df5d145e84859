"""Flow `remote_call`: one pass run or measurement of a run elsewhere, on the machine of a work pool's worker.

The function runs in a killable process of its own, behind the measurement gate of that machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from autoopt.engine.work.environment import cpu, environment
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.settings import settings
from autoopt.workers import Gate, WorkerPool
from autoopt.workers.exchange import Exchange, RemoteAnswer, pack_answer, unpack


@flow(name="remote_call")
def remote_call(call: str, place: str, folder: str | None = None) -> State[None]:
    """Execute a call that was left in the exchange.

    Args:
        call: its id.
        place: path of the exchange below `folder`.
        folder: a folder that both machines reach; by default AUTOOPT_ARTIFACTS_URL.
    """
    return Completed(message=answer_call(call, place, folder))


def answer_call(call_id: str, place: str, folder: str | None) -> str:
    """Execute a call and leave its answer in the exchange; returns the outcome and the message in one line.

    Args:
        call_id: id of the call.
        place: path of the exchange below `folder`.
        folder: None for this machine's AUTOOPT_ARTIFACTS_URL.

    Raises:
        InputError: there is no such call.
    """
    root = folder or settings().artifacts_url
    if not root:
        raise InputError("calls travel through the shared artifacts", remedy="set AUTOOPT_ARTIFACTS_URL for the worker")
    exchange = Exchange(f"{root}/{place}")
    call = exchange.read_call(call_id)
    if call is None:
        raise InputError(f"no call {call_id}", where=exchange.safe_url)
    gate = Gate()
    enter = gate.working
    if call.alone:
        enter = gate.measuring
    with tempfile.TemporaryDirectory(prefix="autoopt-call-") as work, WorkerPool(size=1) as pool:
        payload = unpack(call.payload, exchange, Path(work))
        with enter():
            exchange.mark_begun(call_id)  # its time counts from now on
            result = pool.call(call.call, payload, timeout=call.seconds, memory=call.memory)
        value, files = pack_answer(result.value, Path(work), exchange)
    answer = RemoteAnswer(
        result.outcome,
        value,
        files,
        result.message,
        result.seconds,
        result.details[-2000:],
        machine=to_json({"cpu": cpu(), "environment": environment()}),
        error=result.error,
    )
    exchange.write_answer(call_id, answer)
    return f"{result.outcome} {result.message}".strip()
