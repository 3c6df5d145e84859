import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from autoopt.cli import app
from autoopt.errors import SystemFailure

HEAVY = {"prefect", "onnx", "onnxruntime", "sqlalchemy", "optuna", "sklearn", "networkx", "numpy", "rich"}


def test_python_m_autoopt_prints_help_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from autoopt.cli.app import main; code = main(['--help']);"
        f" print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    command = [sys.executable, "-m", "autoopt", "--help"]
    same = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert same.stdout == done.stdout
    assert "runs" in same.stdout


def test_without_arguments_it_is_the_help(call: Callable[..., Any]) -> None:
    assert call() == call("--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnus"], "No such command 'rnus'. Did you mean 'runs'"),
        (["best", "--josn"], "autoopt best: No such option: --josn"),
        (["best", "a", "b"], "unexpected extra argument"),
        (["runs", "--limit", "x"], "autoopt runs: Invalid value for '--limit'"),
        (["runs", "--limit", "0"], "greater than or equal to 1"),
        (["compare"], "Missing argument"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_2(call: Callable[..., Any], arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_failure_of_the_system_is_3_and_a_bug_asks_to_be_reported(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = [SystemFailure("disk is full\nreally", where="here"), KeyError("x\x1b[2J")]

    def fail(arguments: list[str]) -> int:
        raise errors.pop(0)

    monkeypatch.setattr(app, "_call", fail)
    assert call("runs") == (3, "", "here: disk is full really\n")
    code, out, err = call("runs")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "please report" in err
    assert "\x1b" not in err


def test_the_traceback_is_there_for_whoever_asks(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: list[str]) -> int:
        raise KeyError("x")

    monkeypatch.setattr(app, "_call", fail)
    monkeypatch.setenv("AUTOOPT_DEBUG", "1")
    with pytest.raises(KeyError):
        call("runs")


def test_ctrl_c_is_130_without_a_word(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "_call", interrupted)
    assert call("runs") == (130, "", "")


def test_a_reader_that_goes_away_is_no_error(filled: dict[str, Any]) -> None:
    command = (
        f'{sys.executable} -c \'import sys; from autoopt.cli.app import main; sys.exit(main(["best", "--json"]))\''
    )
    script = f"{command} 2>err.txt | true; cat err.txt"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("name", sorted(n for n, (module, _, _) in app.COMMANDS.items() if app.find_spec(module)))
def test_every_command_has_help_of_its_own(call: Callable[..., Any], name: str) -> None:
    code, out, err = call(name, "--help")
    assert (code, err) == (0, "")
    assert f"Usage: autoopt {name}" in out
