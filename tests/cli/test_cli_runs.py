"""`autoopt runs` and `report`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoopt.results import RunResult
from autoopt.store import open_store


def test_without_a_store_each_command_says_how_one_comes_about(call: Callable[..., Any], home: Path) -> None:
    for arguments in (["runs"], ["runs", "latest"], ["lineage", "x"], ["report"], ["compare", "a", "b"], ["resume"]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert err == f"{home}: no store here; 'autoopt run' creates one; set AUTOOPT_HOME to use another folder\n"
    assert not home.exists()


def test_runs_lists_them(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, _ = call("runs")
    assert code == 0
    assert filled["run"][:12] in out
    assert "fold -> static(per_channel)" in out
    (row,) = json.loads(call("runs", "--json").out)
    assert (row["run"], row["model"], row["status"]) == (filled["run"], "cnn", "finished")


def test_best_shows_the_result_as_it_was(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    assert "3.3x faster (3.2 to 3.4)" in call("runs", "latest").out
    code, out, err = call("runs", filled["run"][:6], "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == RunResult.from_json(filled).to_json()


def test_a_verbose_result_counts_the_work(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    assert "pass runs" not in call("runs", "latest").out
    logger = logging.getLogger("autoopt")
    logger.setLevel(logging.INFO)
    try:
        assert "pass runs: 2 executed, 0 reused" in call("runs", "latest").out
    finally:
        logger.setLevel(logging.NOTSET)


def test_an_unknown_run_is_wrong_input(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("runs", "nosuchrun")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nosuchrun" in err


def test_the_newest_run_with_a_trial_is_resumed(call: Callable[..., Any], filled: dict[str, Any], home: Path) -> None:
    assert call("resume").out == "no run was interrupted or cancelled\n"
    with open_store(None, home) as store:
        known = store.runs.get(filled["run"])
        for name in ("old", "new", "without a trial"):
            run = store.runs.create(replace(known, id="", identity=name, status="running", result=None))
            if name != "without a trial":
                store.trials.add(replace(store.trials.all(known.id)[0], run=run.id))
            store.runs.finish(run.id, "cancelled", {"error": ""})
        (old,) = store.runs.all(identity="old")
    assert f"other interrupted runs: {old.id}\n" in call("resume").err


def test_the_page_holds_result_trials_and_lineage(
    call: Callable[..., Any], filled: dict[str, Any], tmp_path: Path
) -> None:
    code, out, err = call("report", "--out", "page.html")
    assert (code, out, err) == (0, "wrote page.html\n", "")
    page = (tmp_path / "page.html").read_text()
    for expected in ("quick", "fold -&gt; static", "batchnorm_folding", "refused", "odd", "<svg"):
        assert expected in page
    assert json.loads(call("report", "--json").out) == {"run": filled["run"], "path": str(tmp_path / "report.html")}


def test_a_place_that_cannot_be_written_is_wrong_input(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("report", "--out", "no/such/folder/x.html")
    assert (code, out) == (2, "")
    assert err.startswith("no/such/folder/x.html: cannot write the report")
