"""Completion in the shell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoopt.cli.app import main

Call = Any


@pytest.fixture
def complete(home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Complete the last of some words, as bash asks for it."""

    def words(*line: str) -> list[str]:
        monkeypatch.setenv("_AUTOOPT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["autoopt", *line]))
        monkeypatch.setenv("COMP_CWORD", str(len(line)))
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main([])
        return capfd.readouterr().out.split("\n")[:-1]

    return words


def test_commands_options_and_choices_are_completed(complete: Any) -> None:
    assert complete("imp") == ["import-olive"]
    assert complete("passes", "sh") == ["show"]
    assert "--metric" in complete("run", "dag.yaml", "--m")


def test_passes_and_metrics_are_completed(complete: Any) -> None:
    assert complete("passes", "show", "static_q") == ["static_quantization"]
    assert complete("apply", "simp") == ["simplify"]
    assert complete("run", "dag.yaml", "--metric", "accu") == ["accuracy"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run m.onnx --minimize", ["latency", "size", "memory"]),
        ("run m.onnx --layout", ["NCHW", "NHWC"]),
        ("run m.onnx --engine", ["inline", "prefect"]),
        ("run m.onnx --again", ["failed", "measurements", "all"]),
    ],
)
def test_values_of_options_are_completed(complete: Any, line: str, expected: list[str]) -> None:
    assert complete(*line.split(), "") == expected


def test_runs_are_completed(complete: Any, filled: dict[str, Any]) -> None:
    for command in ("runs", "report", "export", "resume", "lineage"):
        assert complete(command, "") == ["latest", filled["run"]], command
    assert complete("runs", filled["run"][:4]) == [filled["run"]]


def test_without_a_store_there_are_no_runs_and_none_is_created(complete: Any, home: Path) -> None:
    assert complete("runs", "") == [""]
    assert not home.exists()


def test_files_are_left_to_the_shell(complete: Any) -> None:
    for command in ("run", "plan", "import-olive", "init"):
        assert complete(command, "") == [""], command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown(
    shell: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_AUTOOPT_COMPLETE", f"source_{shell}")
    with pytest.raises(SystemExit):
        main([])
    script = capfd.readouterr().out
    assert f"_AUTOOPT_COMPLETE=complete_{shell}" in script
