"""A store with one finished run in it, and the command line called in this process."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from gated import calls, shared_workers

from autoopt.cli.app import main
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import ModelResult, RunResult, Trial, WorkCounts, source_result
from autoopt.settings import settings
from autoopt.store import ModelRecord, PassRunRecord, RunRecord, Store, open_store

__all__ = ["calls", "shared_workers"]


class Said(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Call = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Go to an empty folder; return its `.autoopt`, the home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOOPT_HOME", raising=False)
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    settings.cache_clear()
    yield tmp_path / ".autoopt"
    settings.cache_clear()


@pytest.fixture
def call(home: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """Return `call("runs", "--json")`, which runs a command in the empty folder, in this process."""

    def run(*arguments: str) -> Said:
        capfd.readouterr()
        code = main(arguments)
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return run


def put(store: Store, folder: Path, content: bytes) -> str:
    """An artifact with these bytes; its digest."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(content)
    return store.artifacts.put(folder)


@pytest.fixture
def filled(home: Path, tmp_path: Path) -> dict[str, Any]:
    """One finished run: source -> fold -> static, two trials. Returns its result document."""
    with open_store(None, home) as store:
        source, folded, best = (put(store, tmp_path / name, name.encode()) for name in ("source", "folded", "best"))
        store.models.add(ModelRecord(artifact=source, name="cnn"))
        steps = [
            (source, folded, "batchnorm_folding", {}),
            (folded, best, "static_quantization", {"per_channel": True}),
        ]
        for before, after, name, params in steps:
            store.results.finish_pass_run(
                PassRunRecord(
                    key=f"{name} {before[:8]}",
                    pass_name=name,
                    params=params,
                    input=Candidate(before),
                    output=Candidate(after),
                    outcome=Outcome.OK,
                    seconds=0.5,
                    environment={"onnx": "1.23.2"},
                )
            )
        run = store.runs.create(
            RunRecord(id="", name="cnn · quick", identity="i", model=source, settings={"dag": "quick"})
        )
        model = ModelResult(
            artifact=best,
            chain="fold -> static",
            point={"static": {"per_channel": True}},
            metrics={"latency_p50": 0.05, "size": 100.0},
            ratios={"latency_p50": Estimate(0.3, 0.29, 0.31)},
        )
        result = RunResult(
            run=run.id,
            status="finished",
            baseline=source_result(source, metrics={"latency_p50": 0.16, "size": 400.0}),
            best=model,
            front=(model,),
            trial_counts={"total": 2, "ok": 1, "refused": 1},
            pass_runs=WorkCounts(2, 0),
            evaluations=WorkCounts(2, 0),
            seconds={"total": 4.0},
        ).to_json()
        trials = [
            Trial(
                run=run.id, number=n, chain_id="c" * 8, chain="fold -> static", point={"static": {"per_channel": not n}}
            )
            for n in (0, 1)
        ]
        for trial in trials:
            store.trials.add(trial)
        good = {
            "ratios": {"latency_p50": Estimate(0.3, 0.29, 0.31)},
            "candidate": Candidate(best),
            "pass_runs": (f"static_quantization {folded[:8]}",),
        }
        store.trials.finish(Trial(**{**vars(trials[0]), "status": "done", "outcome": Outcome.OK, **good}))
        store.trials.finish(
            Trial(**{**vars(trials[1]), "status": "done", "outcome": Outcome.REFUSED, "message": "odd"})
        )
        store.runs.finish(run.id, "finished", result)
    return result


@pytest.fixture(autouse=True)
def logger_as_before() -> Iterator[None]:
    """Undo what `--verbose` and `--debug` set, because commands run in the tests' own process."""
    logger = logging.getLogger("autoopt")
    level, handlers, propagate = logger.level, list(logger.handlers), logger.propagate
    yield
    logger.handlers, logger.propagate = handlers, propagate
    logger.setLevel(level)
