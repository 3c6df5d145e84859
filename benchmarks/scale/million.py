"""Database times of the commands that read a store of a million trials, and finished trials a second.

    python -m benchmarks.scale.million [--runs 10000] [--trials 100] [--one-model] [--url ADDRESS] [--home FOLDER]

Fills the store with generated rows: a model for each run, an artifact and a pass run for each trial. With
`--one-model`, all pass runs start from the same model. Prints for each command its number of statements, their
milliseconds in the database (best of 5), and the tables that a statement reads whole; then how many trials 8 processes
finish a second, and the CPU time that they need for one. With `--home`, a store that is filled already is used again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, inspect, text

from autoopt.engine.tools.run_report import run_facts
from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.report.run_comparison import compare
from autoopt.results import Trial
from autoopt.store import ChainRecord, ModelRecord, RunRecord, Store, open_store
from autoopt.store.finished import finished_trials, result_of
from autoopt.stored_runs import run_row

PROCESSES, FINISHED = 8, 500
RATIO = {"latency_p50": Estimate(0.5, 0.49, 0.51), "size": Estimate.exact(0.25)}


@dataclass
class Statements:
    """The work that was executed meanwhile."""

    seconds: float = 0.0
    texts: list[tuple[str, Any]] = field(default_factory=list)


@contextmanager
def observed() -> Iterator[Statements]:
    """Observe all statements of this process."""
    statements = Statements()

    def before(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        context.began = time.perf_counter()

    def after(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        statements.seconds += time.perf_counter() - context.began
        statements.texts.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "after_cursor_execute", after)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", before)
        event.remove(Engine, "after_cursor_execute", after)


def engine_of(store: Store) -> Engine:
    """The database of a store, for what its contracts do not offer."""
    assert isinstance(store, Store)
    return store.database._engine


def first_run(store: Store, folder: Path) -> str:
    """Store a model and a run of it; return the run's id."""
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "model.onnx").write_bytes(b"model")
    model = store.artifacts.put(folder / "model")
    store.models.add(ModelRecord(artifact=model, name="model"))
    chains = [ChainRecord(id=f"{c:016d}", name=f"a -> b{c}") for c in range(20)]
    run = store.runs.create(RunRecord(id="", name="model", identity="0" * 64, model=model, plan={"n": 1}), chains).id
    store.trials.finish(trial_of(run, 0))
    return run


def trial_of(run: str, number: int) -> Trial:
    """A finished trial."""
    return Trial(
        run=run,
        number=number,
        chain_id=f"{number % 20:016d}",
        point={"b": {"x": number}},
        status="done",
        outcome=Outcome.OK,
        ratios=RATIO,
        metrics=RATIO,
        message="x" * 200,
    )


def run_id(number: int) -> str:
    """The id of a run, whose beginning no other one has."""
    return f"{number:012x}"[::-1]


def fill(store: Store, folder: Path, options: argparse.Namespace) -> None:
    """Add runs, each with its trials, and an artifact and a pass run for each trial."""
    run, trials = first_run(store, folder), options.trials
    database = engine_of(store)
    with database.begin() as connection:
        one_run = dict(connection.execute(text("SELECT * FROM run")).mappings().one())
        one_trial = dict(connection.execute(text("SELECT * FROM trial")).mappings().one())
    for number in range(1, options.runs):
        id_, model = run_id(number), f"{number:032x}{'f' * 32}"
        given = f"{1:032x}{'f' * 32}" if options.one_model else model
        artifacts = [f"{number:032x}{trial:032x}" for trial in range(trials)]
        best = {"artifact": artifacts[0], "chain": "a -> b0", "metrics": {"latency_p50": 0.5}, "ratios": {}}
        result = {"run": id_, "status": "finished", "best": best, "baseline": {"artifact": model}, "text": "x" * 4000}
        row = {**one_run, "number": number + 1, "id": id_, "identity": f"{number:064x}", "created": float(number)}
        row |= {"status": "finished", "result": json.dumps(result), "model": model}
        keys = [f"k{digest[1:]}" for digest in artifacts]
        files = {"bytes": 1, "files": "{}", "created": 0.0}
        rows = {
            "artifact": [{"digest": digest, **files} for digest in (model, *artifacts)],
            "model": [{"artifact": model, "name": f"model-{number}", "inspection": "{}", "created": 0.0}],
            "run": [row],
            "trial": [],
            "pass_run": [],
        }
        for trial, (digest, key) in enumerate(zip(artifacts, keys, strict=True)):
            of_trial = {"run": id_, "number": trial, "chain": f"{trial % 20:016d}", "artifact": digest}
            rows["trial"].append({**one_trial, **of_trial, "session_options": "{}", "pass_runs": json.dumps([key])})
            work = {"key": key, "outcome": "ok", "pass_name": "b", "params": "{}", "seconds": 1.0, "message": ""}
            work |= {"input_artifact": given, "input_key": given, "input_options": "{}", "output_options": "{}"}
            work |= {"output_artifact": digest, "output_key": digest, "attempts": "[]", "reports": "{}", "run": id_}
            rows["pass_run"].append(work)
        with database.begin() as connection:
            for table, values in rows.items():
                names = list(values[0])
                columns, holders = ", ".join(f'"{name}"' for name in names), ", ".join(f":{name}" for name in names)
                connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({holders})"), values)
    store.trials.finish(trial_of(run, 1))
    if database.dialect.name == "postgresql":  # by itself, sooner or later; nothing analyses a SQLite database
        with database.begin() as connection:
            connection.execute(text("ANALYZE"))


def finish_trials(url: str | None, home: Path, run: str, first: int, queue: Any) -> None:
    """Finish trials in a process of its own; report when it began and ended."""
    with open_store(url, home) as store:
        store.trials.finish(trial_of(run, first))  # connects
        began, used = time.monotonic(), time.process_time()
        for number in range(first + 1, first + 1 + FINISHED):
            store.trials.finish(trial_of(run, number))
        cpu = time.process_time() - used
        queue.put((began, time.monotonic(), cpu))


def rate(url: str | None, home: Path, run: str) -> tuple[float, float]:
    """The number of trials that `PROCESSES` processes finish a second, and their own CPU seconds for each."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    new = 2 * FINISHED * (int(time.time()) % 1_000_000)  # numbers that no earlier measurement used
    firsts = [new + 2 * FINISHED * process for process in range(PROCESSES)]
    processes = [context.Process(target=finish_trials, args=(url, home, run, first, queue)) for first in firsts]
    for process in processes:
        process.start()
    spans = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    seconds = max(end for _, end, _ in spans) - min(begin for begin, _, _ in spans)
    count = PROCESSES * FINISHED
    return count / seconds, sum(cpu for _, _, cpu in spans) / count


def whole_tables(store: Store, statements: Sequence[tuple[str, Any]]) -> set[str]:
    """The tables that statements read without an index, by the database's own plan."""
    engine = engine_of(store)
    known = set(inspect(engine).get_table_names())  # plans name the parts of a recursion in the same way
    sqlite = engine.dialect.name == "sqlite"
    prefix, word = ("EXPLAIN QUERY PLAN ", "SCAN ") if sqlite else ("EXPLAIN ", "Seq Scan on ")
    tables = set()
    with engine.connect() as connection:
        for statement, parameters in statements:
            if statement.lstrip().upper().startswith(("SELECT", "WITH")):
                for row in connection.exec_driver_sql(prefix + statement, parameters):
                    _, found, rest = str(row[-1]).partition(word)
                    if found and "USING" not in rest:
                        tables.add(rest.split()[0])
    return tables & known


def main() -> None:
    """Fill a store and print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--one-model", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = options.home or Path(name, "home")
        with open_store(options.url, home) as store:
            if not store.runs.newest(2):
                began = time.monotonic()
                fill(store, Path(name), options)
                print(f"{options.runs * options.trials} trials, written in {time.monotonic() - began:.0f} s")
            middle, latest = run_id(options.runs // 2), run_id(options.runs - 1)
            commands: dict[str, Callable[[], object]] = {
                "best": lambda: result_of(store.runs.get("latest")),
                "best ID": lambda: result_of(store.runs.get(middle[:11])),
                "runs": lambda: [run_row(store, record) for record in store.runs.newest(20)],
                "lineage": lambda: store.lineage.trace(result_of(store.runs.get(middle)).best.candidate),  # type: ignore[union-attr]
                "compare": lambda: compare(result_of(store.runs.get(middle)), result_of(store.runs.get(latest))),
                "report": lambda: report(store, middle),
            }
            for command, work in commands.items():
                best = min((measured(work) for _ in range(5)), key=lambda statements: statements.seconds)
                scans = ", ".join(sorted(whole_tables(store, best.texts))) or "none"
                print(f"{command:<8}{len(best.texts):4} statements {1000 * best.seconds:8.1f} ms, read whole: {scans}")
            run = store.runs.all(status="running")[0].id
        finished, cpu = rate(options.url, home, run)
        print(f"{finished:.0f} finished trials a second from {PROCESSES} processes, {1e6 * cpu:.0f} us of CPU for each")


def measured(work: Callable[[], object]) -> Statements:
    """The statements of a piece of work."""
    with observed() as statements:
        work()
    return statements


def report(store: Store, run: str) -> None:
    """The queries behind the page of a run."""
    record = store.runs.get(run)
    result = result_of(record)
    run_facts(store, record, result)
    finished_trials(store, record.id)


if __name__ == "__main__":
    main()
