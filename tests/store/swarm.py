"""Many processes that want to do the same work at the same time.

python swarm.py HOME URL PROCESSES KEYS      prints {"done", "lost", "duplicates", "errors", "seconds"}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from store_helpers import CHAIN, key, pass_run, put, start_run

from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.store import open_store


def work(home: Path, url: str, source: str, count: int) -> None:
    """Do every piece of work that nobody else does, until all are done; then the same with trials."""
    store = open_store(url, home)
    keys = {key("swarm", n): n for n in range(count)}
    while True:
        left = sorted(set(keys) - set(store.results.pass_runs(keys)))
        if not left:
            break
        for one in left:
            if store.claims.acquire("pass_run", one):
                record = pass_run(source, None, key=one, outcome=Outcome.REFUSED, params={"n": keys[one]})
                note(home, f"pass_run {keys[one]} {store.results.finish_pass_run(record)}")
    while (trial := store.trials.claim_next("swarm", CHAIN)) is not None:
        note(home, f"trial {trial.number} {store.trials.finish(trial)}")
    store.close()


def note(home: Path, line: str) -> None:
    handle = os.open(home / "done", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def main(home: Path, url: str, processes: int, count: int) -> dict[str, Any]:
    store = open_store(url, home)
    start_run(store, id="swarm")
    source = put(store, b"source")
    for n in range(count):
        store.trials.add(Trial("swarm", n, CHAIN, {}))
    store.close()
    began, children = time.monotonic(), []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                work(home, url, source, count)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    errors = sum(os.waitpid(pid, 0)[1] != 0 for pid in children)
    seconds = time.monotonic() - began
    done = Counter((home / "done").read_text().splitlines())
    expected = {f"{kind} {n} True" for kind in ("pass_run", "trial") for n in range(count)}
    return {
        "done": len(expected & set(done)),
        "lost": sorted(expected - set(done)),
        "duplicates": sorted(line for line, times in done.items() if times > 1 or line not in expected),
        "errors": errors,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
