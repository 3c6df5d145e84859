"""Flow `remote_call`: one pass run or measurement of a run elsewhere, on the machine of a work pool's worker.

The function runs in a killable process of its own, behind the measurement gate of that machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from autoopt.engine.work.environment import cpu, environment
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.measure.meters import CUSTOM, EXECUTED_GRAPH_METER, METERS
from autoopt.outcome import Outcome
from autoopt.passes.request import RUN_PASSES
from autoopt.registry import DESCRIBE
from autoopt.script import only_allowed_scripts
from autoopt.settings import settings
from autoopt.workers import CallResult, Gate, WorkerPool
from autoopt.workers.exchange import CallBegun, Exchange, RemoteAnswer, RemoteCall, pack_answer, unpack
from autoopt.workers.hosts import RUNTIME
from autoopt.working_folder import working_folder

_METERS: Final = (*METERS, CUSTOM, EXECUTED_GRAPH_METER)
FUNCTIONS: Final = frozenset((RUN_PASSES, RUNTIME, DESCRIBE, *(meter.function for meter in _METERS)))
"""The functions that a call may name. Whoever may start flow runs also chooses the exchange and what is in it."""


@flow(name="remote_call")
def remote_call(call: str, place: str, folder: str | None = None) -> State[None]:
    """Execute a call that was left in the exchange.

    Args:
        call: its id.
        place: path of the exchange below `folder`.
        folder: a folder that both machines reach; by default AUTOOPT_ARTIFACTS_URL.
    """
    return Completed(message=answer_call(call, place, folder))


@only_allowed_scripts()
def answer_call(call_id: str, place: str, folder: str | None) -> str:
    """Execute a call and leave its answer in the exchange; returns the outcome and the message in one line.

    Raises:
        InputError: there is no such call.
    """
    root = folder or settings().artifacts_url
    if not root:
        raise InputError("calls travel through the shared artifacts", remedy="set AUTOOPT_ARTIFACTS_URL for the worker")
    exchange = Exchange(f"{root}/{place}")
    call = exchange.read(call_id, RemoteCall)
    if call is None:
        raise InputError(f"no call {call_id}", where=exchange.safe_url)
    with working_folder() as work:
        result = CallResult(Outcome.FAILED, message=f"{call.call!r} is no function that may be called from elsewhere")
        if call.call in FUNCTIONS:
            result = _execute(call_id, call, exchange, work)
        value, files = pack_answer(result.value, work, exchange)
    answer = RemoteAnswer(
        result.outcome,
        value,
        files,
        result.message,
        result.seconds,
        result.details[-2000:],
        machine=to_json({"cpu": cpu(), "environment": environment()}),
        error=result.error,
        transient=result.transient,
    )
    exchange.write(call_id, answer)
    return f"{result.outcome} {result.message}".strip()


def _execute(call_id: str, call: RemoteCall, exchange: Exchange, work: Path) -> CallResult:
    """Execute a call behind the gate, with its files in the folder `work`."""
    enter = Gate().working
    if call.alone:
        enter = Gate().measuring
    with WorkerPool(size=1) as pool:
        payload = unpack(call.payload, exchange, work)
        with enter():
            exchange.write(call_id, CallBegun())
            return pool.call(call.call, payload, timeout=call.seconds, memory=call.memory)
