import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoopt.results import RunResult


def test_without_a_store_each_command_says_how_one_comes_about(call: Callable[..., Any], home: Path) -> None:
    for arguments in (["runs"], ["best"], ["lineage", "x"], ["report"], ["compare", "a", "b"], ["resume"]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert err == f"{home}: no store here; 'autoopt run' creates one; set AUTOOPT_HOME to use another folder\n"
    assert not home.exists()


def test_runs_lists_them(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, _ = call("runs")
    assert code == 0
    assert filled["run"][:12] in out
    assert "fold -> static [static: per_channel=true]" in out
    (row,) = json.loads(call("runs", "--json").out)
    assert (row["run"], row["model"], row["status"]) == (filled["run"], "cnn", "finished")


def test_best_shows_the_result_as_it_was(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    assert "0.300x (0.290..0.310)" in call("best").out
    code, out, err = call("best", filled["run"][:6], "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == RunResult.from_json(filled).to_json()


def test_a_verbose_result_counts_the_work(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    assert "pass runs" not in call("best").out
    logger = logging.getLogger("autoopt")
    logger.setLevel(logging.INFO)
    try:
        assert "pass runs: 2 executed, 0 reused" in call("best").out
    finally:
        logger.setLevel(logging.NOTSET)


def test_an_unknown_run_is_wrong_input(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("best", "nosuchrun")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nosuchrun" in err
