import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoopt.store import RunRecord, open_store


@pytest.fixture
def slower(filled: dict[str, Any], home: Path) -> str:
    """A second run whose best model is slower for certain."""
    result = copy.deepcopy(filled)
    result["best"]["ratios"]["latency_p50"] = {"value": 0.5, "low": 0.45, "high": 0.55}
    with open_store(None, home) as store:
        run = store.runs.create(RunRecord(id="", name="quick", identity="j", model=filled["baseline"]["artifact"]))
        result["run"] = run.id
        store.runs.finish(run.id, "finished", result)
    return run.id


def test_a_regression_is_exit_code_1(call: Callable[..., Any], filled: dict[str, Any], slower: str) -> None:
    code, out, _ = call("compare", filled["run"], slower)
    assert code == 1
    assert out.endswith("regressed\n")
    code, out, _ = call("compare", slower, filled["run"], "--json")
    assert code == 0
    verdicts = {d["metric"]: d["verdict"] for d in json.loads(out)["differences"]}
    assert verdicts["latency_p50"] == "better"


def test_a_run_is_not_compared_with_itself(call: Callable[..., Any], filled: dict[str, Any]) -> None:
    code, out, err = call("compare", "latest")
    assert (code, out) == (2, "")
    assert err.startswith(f"OLD and NEW are both run {filled['run']}; name an earlier run")


def test_the_second_run_is_the_latest_unless_named(
    call: Callable[..., Any], filled: dict[str, Any], slower: str
) -> None:
    assert json.loads(call("compare", filled["run"], "--json").out)["second"] == slower
