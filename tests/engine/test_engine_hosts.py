"""Passes and measurements in other interpreters, metrics on the way, objectives of nodes; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from interpreters import ALL_BUT_AUTOOPT, RUNTIME, linked_interpreter

from autoopt.errors import ConfigError, InputError
from autoopt.problem.resolve import make_plan
from autoopt.store import open_store

pytestmark = pytest.mark.usefixtures("own_home")

CHAIN: dict[str, Any] = {
    "passes": {"tidy": "simplify", "quant": "dynamic_quantization"},
    "chains": [["tidy", "quant"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has numpy and onnxruntime, and no autoopt."""
    return linked_interpreter(tmp_path_factory.mktemp("env"), *RUNTIME)


def test_passes_and_metrics_in_another_interpreter(go: Any, mlp_file: Path, tmp_path: Path, bare_python: str) -> None:
    here = go(CHAIN, model=mlp_file)
    host = {"type": "isolated_ort", "python": bare_python}
    passes = {"tidy": "simplify", "quant": {"pass": "dynamic_quantization", "host": host}}
    there = go({**CHAIN, "passes": passes, "target": {"python": bare_python}}, model=mlp_file)
    assert there.best.artifact == here.best.artifact, "the same bytes wherever the pass ran"
    assert there.pass_runs.executed == 1, "only what runs elsewhere is another pass run"
    assert there.evaluations.reused < there.evaluations.executed, "another runtime measures anew"
    with open_store(None, tmp_path / "home") as store:
        steps = {s.node: s for s in store.lineage.trace(there.best.artifact).steps}
        trial = store.trials.all(there.run)[0]
        record = store.results.pass_run(trial.pass_runs[-1])
    assert set(steps) == {"quant"}, "tidy found nothing to do"
    assert record.environment["pass host"]["onnxruntime"]


PLUGIN = """
from typing import Annotated
from autoopt.space import Categorical
from onnx import helper

def stamp(model, text: Annotated[str, Categorical(["a", "b"])] = "a"):
    last = model.graph.node[-1]
    model.graph.node.append(helper.make_node("Identity", [text], [last.output[0]]))
    last.output[0] = text
    return model
"""


@pytest.fixture(scope="module")
def plugin_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with all of autoopt's libraries, and a plug-in that this one lacks."""
    folder = tmp_path_factory.mktemp("plugin_env")
    python = linked_interpreter(folder, *ALL_BUT_AUTOOPT)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "stamping.py").write_text(PLUGIN)
    info = site / "stamping-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stamping\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[autoopt.passes]\nstamp = stamping:stamp\n")
    return python


def test_a_pass_that_only_another_interpreter_has_is_planned_and_run(
    go: Any, mlp_file: Path, tmp_path: Path, plugin_python: str
) -> None:
    host = {"type": "python_env", "python": plugin_python}
    stamp = {"pass": "stamp", "params": "search", "host": host}
    dag = {**CHAIN, "passes": {"quant": "dynamic_quantization", "stamp": stamp}, "chains": [["quant", "stamp"]]}
    plan = make_plan({"name": "t", **dag}, mlp_file)
    assert plan.to_json()["hosts"] == {"stamp": f"python_env {plugin_python}"}
    assert plan.pass_info("stamp").source_digest.startswith("stamping 1.5")
    result = go(dag, model=mlp_file)
    assert result.trial_counts["ok"] == 2
    with open_store(None, tmp_path / "home") as store:
        model = onnx.load(store.artifacts.path(result.best.artifact))
    assert model.graph.node[-1].input == [result.best.params["stamp"]["text"]]


def test_a_pass_that_no_interpreter_has_is_refused_at_its_line(
    mlp_file: Path, tmp_path: Path, plugin_python: str
) -> None:
    file = tmp_path / "d.yaml"
    host = f"{{type: python_env, python: {plugin_python}}}"
    file.write_text(f"name: d\nhost: {host}\npasses:\n  a: {{pass: stmap}}\nchains: [[a]]\n")
    with pytest.raises(ConfigError, match="did you mean 'stamp'") as caught:
        make_plan(file)
    expected = f"{file}:4: passes.a.pass: unknown pass 'stmap' here and on python_env {plugin_python}; "
    assert str(caught.value).startswith(expected)


def test_a_node_with_objectives_of_its_own_decides_by_them(go: Any, mlp_file: Path) -> None:
    """The run wants the smaller model, the node the larger one: what it hands on shows whose word counted."""
    quant = {"pass": "dynamic_quantization", "params": {"per_channel": {"search": [False, True]}}}
    tune = {"pass": "ort_graph_optimization", "params": {"level": {"search": ["basic", "all"]}}}
    dag = {
        **CHAIN,
        "passes": {"quant": quant, "tune": tune},
        "chains": [["quant", "tune"]],
        "search": {"strategy": "per-chain", "order": "pass-by-pass", "sampler": "exhaustive"},
    }
    smaller = go(dag, model=mlp_file)
    own = {**quant, "objectives": [{"metric": "size", "goal": "maximize"}]}
    larger = go({**dag, "passes": {**dag["passes"], "quant": own}}, model=mlp_file)
    assert smaller.best.params["quant"]["per_channel"] is False
    assert larger.best.params["quant"]["per_channel"] is True


@pytest.mark.parametrize(
    ("more", "line", "text"),
    [
        ("measurement: {second: 1}", 4, "did you mean 'seconds'"),
        ("host: {type: python_env}", 4, "is required for type python_env"),
        ("target: {device: cpu, host: {type: python_env, python: /no/python}}", 4, "no such interpreter"),
        ("target: {device: cpu, python: x, host: {type: python_env, python: y}}", 4, "exclude each other"),
        ("host: {type: python_env, python: /no/python}", 4, "no such interpreter"),
        ("target: {device: cpu, python: /no/python}", 4, "no such interpreter"),
    ],
)
def test_what_a_run_cannot_do_is_refused_at_its_line(go: Any, tmp_path: Path, more: str, line: int, text: str) -> None:
    file = tmp_path / "d.yaml"
    file.write_text(f"name: d\npasses: {{a: simplify}}\nchains: [[a]]\n{more}\n")
    with pytest.raises(ConfigError, match=text) as found:
        make_plan(file)
    assert str(found.value).startswith(f"{file}:{line}: ")


def test_a_provider_that_is_not_installed_ends_the_run_with_its_name(go: Any, mlp_file: Path) -> None:
    with pytest.raises(InputError, match="QNNExecutionProvider is not in the installed runtime"):
        go({**CHAIN, "target": {"execution_provider": "QNNExecutionProvider"}}, model=mlp_file)
