"""Prefect is an extra: what needs it says so in one line before any work, and everything else works without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import mlp, write

from autoopt.cli.app import main
from autoopt.engine.tools.doctor import examine
from autoopt.settings import Settings, settings
from autoopt.store import open_store

DAG = "name: t\npasses: {fold: constant_folding}\nchains: [[fold]]\nobjectives: [{metric: size}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, of a Python without Prefect."""
    for name in [name for name in sys.modules if name.startswith("autoopt.orchestrate")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "autoopt.deployments", raising=False)
    monkeypatch.setitem(sys.modules, "prefect", None)
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "zoo.yaml").write_text("name: z\ndag: dag.yaml\nmodels: [model.onnx]\n")
    write(mlp(), tmp_path)
    yield tmp_path
    settings.cache_clear()


@pytest.mark.parametrize(
    "command",
    [
        "run dag.yaml --model model.onnx --engine prefect", "sweep zoo.yaml --engine prefect", "serve",
    ],
)  # fmt: skip
def test_commands_that_need_prefect_name_the_extra(
    command: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    open_store(None, folder / "home").close()
    code = main(command.split())
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "Prefect is not installed; pip install 'autoopt[prefect]'"
    with open_store(None, folder / "home") as store:
        assert list(store.runs.all()) == []


def test_a_run_and_its_resume_do_without_prefect(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "dag.yaml", "--model", "model.onnx", "--quiet"]) == 0
    assert main(["resume", "--quiet"]) == 0
    assert main(["runs", "latest"]) == 0


def test_the_doctor_finds_no_problem(folder: Path) -> None:
    (finding,) = (one for one in examine(Settings(folder / "home")) if one.check == "prefect")
    assert (finding.status, "not installed" in finding.message) == ("ok", True)
    assert "autoopt[prefect]" in finding.remedy
