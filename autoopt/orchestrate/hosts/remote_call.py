"""Flow `remote_call`: one pass run or measurement of a run elsewhere, on the machine of a work pool's worker."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from autoopt.engine.work.environment import cpu, environment
from autoopt.errors import InputError
from autoopt.settings import settings
from autoopt.workers import Gate, WorkerPool
from autoopt.workers.exchange import Exchange, pack_answer, unpack


@flow(name="remote_call")
def remote_call(call: str, place: str, folder: str | None = None) -> State[None]:
    """Carry out a call that was left in the exchange.

    Args:
        call: its id.
        place: where the exchange is below `folder`.
        folder: a folder that both machines reach; nothing where AUTOOPT_ARTIFACTS_URL is that.
    """
    return Completed(message=carry_out(call, place, folder))


def carry_out(call: str, place: str, folder: str | None) -> str:
    """On the worker's side: carry out one call and leave its answer; returns the outcome in one line.

    Args:
        folder: what `place` is below; None: this machine's AUTOOPT_ARTIFACTS_URL.

    Raises:
        InputError: the call is not there.
    """
    root = folder or settings().artifacts_url
    if not root:
        raise InputError("calls come through the shared artifacts", remedy="set AUTOOPT_ARTIFACTS_URL for the worker")
    exchange = Exchange(f"{root}/{place}")
    asked = exchange.read(call, "asked.json")
    if asked is None:
        raise InputError(f"there is no call {call}", where=exchange.safe_url)
    gate = Gate()
    with tempfile.TemporaryDirectory(prefix="autoopt-call-") as work, WorkerPool(size=1) as pool:
        payload = unpack(asked["payload"], exchange, Path(work))
        with gate.measuring() if asked["alone"] else gate.working():
            exchange.write(call, "begun.json", {})  # from now on its time counts
            called = pool.call(asked["call"], payload, timeout=asked["seconds"], memory=asked["memory"])
        answer = pack_answer(called.value, Path(work), exchange)
    said: Mapping[str, Any] = {"outcome": str(called.outcome), "message": called.message, "seconds": called.seconds}
    machine = {"cpu": {k: list(v) if k == "flags" else v for k, v in cpu().items()}, "environment": environment()}
    exchange.write(call, "answer.json", {**said, **answer, "details": called.details[-2000:], "machine": machine})
    return f"{called.outcome} {called.message}".strip()
