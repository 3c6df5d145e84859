"""The work of the deployed flow `tune_chain`."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from autoopt.engine.run.join import Joined, join
from autoopt.errors import AutooptError
from autoopt.orchestrate.flow_runs.artifacts import show_chain
from autoopt.orchestrate.flow_runs.in_process import ROUND
from autoopt.orchestrate.flow_runs.worker_slot import Place
from autoopt.orchestrate.hosts.work_pool import PrefectHost
from autoopt.store import TrialRecord

LINGER_SECONDS = 600.0
"""How long a chain's run waits for further trials before it ends, while nobody wants its place; a later trial gets a
run of its own."""
POLL_SECONDS = 0.3


def tune(run: str, chain: str) -> State[Any]:
    """Carry out the trials of one chain for as long as there are any."""
    try:
        with join(run, opener=PrefectHost) as joined:
            retried = flow_run.run_count > 1 or not joined.under_way
            if retried:
                joined.redo(chain)
            redone = _trials(joined, chain)
            if retried and redone and not joined.under_way:
                joined.conclude()
            rows = [r for r in joined.store.trials.all(run) if r.chain == chain and r.status == "done"]
            show_chain(joined.store, run, chain)
    except AutooptError as error:
        return Failed(message=str(error))
    good = sum(r.outcome is not None and r.outcome.good for r in rows)
    said = f"{good} of {len(rows)} trials ok, {redone} carried out now"
    return Completed(message=said) if good else Failed(message=said)


def _trials(joined: Joined, chain: str) -> int:
    """Claim and carry out trials until there are no more, or enough for one flow run; how many."""

    @task(name="trial", task_run_name="trial {number}", cache_policy=NO_CACHE, persist_result=False)
    def trial(number: int) -> State[Any]:
        row = joined.carry_out(claimed[number])
        said = _said(row)
        return Completed(message=said) if row.outcome is not None and row.outcome.good else Failed(message=said)

    claimed: dict[int, TrialRecord] = {}
    done, idle_since = 0, time.monotonic()
    with Place(joined.store, joined.record.id, UUID(str(flow_run.id))) as place:
        while done < ROUND and time.monotonic() - idle_since < LINGER_SECONDS:
            with joined.session.ctx.gate.working():
                pass  # who waits keeps still while a latency is measured
            row = joined.claim(chain)
            if row is None:
                if not joined.under_way or place.wanted():
                    break
                time.sleep(POLL_SECONDS)
                continue
            claimed[row.number] = row
            trial(row.number, return_state=True)
            done, idle_since = done + 1, time.monotonic()
    return done


def _said(row: TrialRecord) -> str:
    shown = [str(row.outcome)]
    shown += [f"{n} {row.ratios[n].value:.4g}x" for n in ("latency_p50", "size") if n in row.ratios]
    return ", ".join(shown) + (f": {row.message}" if row.message else "")
