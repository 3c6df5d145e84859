"""A small run carried out by processes that are killed, until it is finished; then what is left of it is examined.

    python chaos.py HOME URL VARIANT KILLS SEED      prints {"kills", "rounds", "problems": [...]}

VARIANT: `store`, or `naive`, which writes rows before files, in place and without temporary names. Half of the kills
come at named points, half at random moments. This process has one thread and forks the others, so that a kill costs
milliseconds; it kills only its own children.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from run_comparison import canonical
from store_helpers import CHAIN, evaluation, key, pass_run, write_model

from autoopt.errors import AutooptError
from autoopt.model.candidate import Candidate
from autoopt.model.files import digest_folder
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.store import ModelRecord, RunRecord, Store, faults, open_store
from autoopt.store.faults import reached
from autoopt.store.records import ArtifactRecord
from autoopt.store.sql import tables
from autoopt.store.sql.rows import dumps, insert_if_absent
from autoopt.store.verify import verify

TRIALS, PASSES = 8, 3
POINTS = (*faults.POINTS[:5], "after claim", "after trial")
SIZE = 40_000


def open_sql(home: Path, url: str, variant: str) -> Store:
    store = open_store(url, home)
    if variant == "naive":
        store.files.put = _naive_put(store)  # type: ignore[method-assign]
    return store


def _naive_put(store: Store) -> Any:
    """Row first, then the files, straight to their place, in two halves."""

    def put(source: Path, digest: str | None = None, *, consume: bool = False) -> ArtifactRecord:
        found = digest_folder(source)
        content = (source / "model.onnx").read_bytes()
        row = {"digest": found, "bytes": len(content), "files": dumps({"model.onnx": len(content)})}
        store.database.write(lambda c: insert_if_absent(c, tables.artifact, {**row, "created": 0.0}))
        final = store.files.folder(found)
        if not final.exists():
            final.mkdir(parents=True)
            with open(final / "model.onnx", "wb") as file:
                file.write(content[: SIZE // 2])
                file.flush()
                reached("after copy")
                file.write(content[SIZE // 2 :])
        return ArtifactRecord(found, len(content), {"model.onnx": len(content)})

    return put


def begin(store: Store) -> str:
    """The run's id; the run is made by the first who comes."""
    folder = write_model(store.home / f"source.{os.getpid()}", b"s" * SIZE)
    source = store.artifacts.put(folder, consume=True)
    store.models.add(ModelRecord(source, "net"))
    run = store.runs.create(RunRecord("chaos", "net", key("chaos"), source)).id
    store.claims.acquire("run", run)
    for n in range(TRIALS):
        store.trials.add(Trial(run, n, CHAIN, {"a": {"n": n}}))
    return run


def work(home: Path, url: str, variant: str) -> None:
    """Carry out whatever is left to do."""
    store = open_sql(home, url, variant)
    run = begin(store)
    while (trial := store.trials.claim_next(run, CHAIN)) is not None:
        reached("after claim")
        store.trials.finish(carry_out(store, trial))
        reached("after trial")
    store.runs.finish(run, "finished", {"trials": TRIALS})
    store.close()


def carry_out(store: Store, trial: Trial) -> Trial:
    artifact, keys = store.runs.get(trial.run).model, []
    for step in range(PASSES):
        params = {"step": step, "n": trial.number >> (PASSES - 1 - step)}  # trials share their beginnings
        work_key = key(artifact, params)
        found = store.results.pass_run(work_key)
        if found is None:
            store.claims.acquire("pass_run", work_key)
            content = hashlib.sha256(f"{artifact}{params}".encode()).digest() * (SIZE // 32)
            made = store.artifacts.put(write_model(store.home / f"work.{os.getpid()}", content))
            record = pass_run(artifact, made, "step", key=work_key, params=params, run=trial.run)
            if store.results.finish_pass_run(record):
                note(store.home, work_key)
            found = store.results.pass_run(work_key)
        assert found.output is not None
        keys.append(work_key)
        artifact = found.output.artifact
    size = float(store.artifacts.path(artifact).stat().st_size)
    judged = evaluation(artifact, size, run=trial.run)
    if store.results.evaluation(judged.key) is None:
        store.results.finish_evaluation(judged)
    return Trial(
        trial.run, trial.number, trial.chain_id, trial.point, status="done", outcome=Outcome.OK,
        candidate=Candidate(artifact), metrics=judged.metrics, pass_runs=tuple(keys), evaluations=(judged.key,),
    )  # fmt: skip


def note(home: Path, done: str) -> None:
    """That a result was written, in one atomic append."""
    handle = os.open(home / "written", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{done}\n".encode())
    os.close(handle)


def examine(home: Path, url: str) -> list[str]:
    """What is wrong with a finished round, beside its being different."""
    store = open_sql(home, url, "store")
    found = verify(store)
    problems = [f"{p.kind} {p.digest[:8]}" for p in found.problems]
    written = (home / "written").read_text().split()
    problems += [f"written twice {k[:8]}" for k, count in Counter(written).items() if count > 1]
    try:
        problems += [
            f"lineage of {a.digest[:8]}" for a in store.artifacts.all() if store.lineage.trace(a.digest).source == ""
        ]
    except AutooptError as error:
        problems.append(str(error))
    store.close()
    return problems


def child(home: Path, url: str, variant: str, fault: str, moment: float | None) -> bool:
    """One process at work, killed at a named point or after `moment` seconds; whether it was killed."""
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            faults.arm(fault)
            work(home, url, variant)
            code = 0
        except AutooptError:
            code = 1  # as the naive variant's damaged artifacts make it
        finally:
            os._exit(code)
    if moment is not None:
        ended = os.pidfd_open(pid)
        if not select.select([ended], [], [], moment)[0]:
            os.kill(pid, signal.SIGKILL)
        os.close(ended)
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3:
        raise RuntimeError("the work itself failed")
    return os.WIFSIGNALED(status)


def clear(home: Path, url: str) -> None:
    store = open_sql(home, url, "store")
    store.database.write(lambda c: [c.execute(t.delete()) for t in reversed(tables.metadata.sorted_tables)])
    store.close()
    shutil.rmtree(home / "artifacts")
    (home / "written").unlink(missing_ok=True)


def main(home: Path, url: str, variant: str, kills: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    child(home, url, "store", "", None)
    store = open_sql(home, url, "store")
    expected = canonical(store, "chaos")
    store.close()
    problems, done, rounds = examine(home, url), 0, 0
    while done < kills:
        clear(home, url)
        rounds, attempts = rounds + 1, 0
        while True:
            named = rng.random() < 0.5
            fault = f"{rng.choice(POINTS)}:{rng.randint(1, 6)}" if named else ""
            killed = child(home, url, variant, fault, None if named else rng.uniform(0.003, 0.06))
            done, attempts = done + killed, attempts + 1
            if not killed or attempts > 200:
                break
        store = open_sql(home, url, "store")
        try:
            if canonical(store, "chaos") != expected:
                problems.append(f"round {rounds} is different")
        except AutooptError as error:
            problems.append(str(error))
        store.close()
        problems += examine(home, url)
    return {"kills": done, "rounds": rounds, "problems": problems}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))))
