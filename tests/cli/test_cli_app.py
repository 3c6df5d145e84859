import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import typer
from builders import mlp, write
from children import HANG_SECONDS

from autoopt.cli import app
from autoopt.errors import SystemFailure

HEAVY = {"prefect", "onnx", "onnxruntime", "sqlalchemy", "optuna", "sklearn", "networkx", "numpy", "rich"}


def test_python_m_autoopt_prints_help_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from autoopt.cli.app import main; code = main(['--help']);"
        f" print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    command = [sys.executable, "-m", "autoopt", "--help"]
    same = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert same.stdout == done.stdout
    assert "runs" in same.stdout


def test_without_arguments_it_prints_the_help(call: Callable[..., Any]) -> None:
    assert call() == call("--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnus"], "No such command 'rnus'. Did you mean 'runs'"),
        (["runs", "--josn"], "autoopt runs: No such option: --josn"),
        (["runs", "a", "b"], "unexpected extra argument"),
        (["runs", "--limit", "x"], "autoopt runs: Invalid value for '--limit'"),
        (["runs", "--limit", "0"], "must be greater than or equal to 1"),
        (["compare"], "Missing argument 'OLD'; see 'autoopt compare --help'"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_2(
    call: Callable[..., Any], arguments: list[str], said: str
) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemFailure("disk is full\nreally", where="here"), (3, "", "here: disk is full really\n")),
        (KeyboardInterrupt(), (130, "", "")),
        (KeyError("x\x1b[2J"), None),
    ],
)
def test_what_ends_a_command_has_an_exit_code_and_a_bug_asks_for_a_report(
    call: Callable[..., Any],
    error: BaseException,
    said: tuple[int, str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr(app, "_call", fail)
    if said is not None:
        assert call("runs") == said
        return
    code, out, err = call("runs")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "please report" in err
    assert "\x1b" not in err
    monkeypatch.setenv("AUTOOPT_DEBUG", "1")
    with pytest.raises(KeyError):
        call("runs")


def test_a_path_that_is_too_long_is_wrong_input(call: Callable[..., Any], tmp_path: Path) -> None:
    write(mlp(), tmp_path)
    code, out, err = call("plan", str(tmp_path / "model.onnx"), "--data", "x" * 300_000)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith("xx: File name too long\n")
    assert len(err) < 5000


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="needs a user who may not read all files")
def test_what_the_user_may_not_read_is_wrong_input(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    write(mlp(), folder)
    ordinary = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*ordinary, sys.executable, "-m", "autoopt", "run"]
    for closed, named in ((folder / "model.onnx", "model.onnx"), (folder, "closed/model.onnx")):
        closed.chmod(0)
        said = subprocess.run(
            [*command, str(folder / "model.onnx")], capture_output=True, text=True, timeout=HANG_SECONDS, cwd=tmp_path
        )
        closed.chmod(0o755)
        assert (said.returncode, said.stderr.count("\n")) == (2, 1), said.stderr
        assert f"{named}: " in said.stderr
        assert "ermission denied" in said.stderr
        assert "config.json" not in said.stderr


def test_a_removed_current_folder_is_said(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said = call("run", "dag.yaml", "-q")
    assert (said.code, said.err) == (3, "the current folder was removed; change to another one\n")


def test_names_that_the_terminal_cannot_show_are_escaped(
    filled: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert app.main(["plan", str(write(mlp(), tmp_path / "ö")), "--verbose"]) == 0
    assert app.main(["report", "--out", str(tmp_path / "ö\udcff.html")]) == 0  # a byte that is not UTF-8
    stream.seek(0)
    assert "\\u2514" in stream.read()  # a line of the tree


def test_the_option_debug_shows_the_traceback(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DEBUG", "")  # the option sets the variable; this restores it afterwards
    monkeypatch.setattr("autoopt.cli.store.doctor", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        call("--debug", "doctor")


def test_the_version_is_printed_before_anything_else(call: Callable[..., Any]) -> None:
    assert call("--version", "runs") == (0, f"{version('autoopt')}\n", "")


def test_a_closed_pipe_is_no_error(filled: dict[str, Any]) -> None:
    main = 'import sys; from autoopt.cli.app import main; sys.exit(main(["runs", "--json"]))'
    command = f"{sys.executable} -c '{main}'"
    script = f"{command} 2>err.txt | true; cat err.txt"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("streams", "code", "shown"),
    [
        (">&-", 0, ""),
        ("<&- >&-", 0, ""),
        (">/dev/full", 3, "cannot write the output: No space left on device\n"),
    ],
)
def test_standard_streams_may_be_closed_or_full(filled: dict[str, Any], streams: str, code: int, shown: str) -> None:
    script = f"{sys.executable} -m autoopt runs latest {streams}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (code, shown)


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_the_exit_code_tells_where_standard_error_cannot(home: Path, streams: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m autoopt runs latest {streams}"], timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 2


def test_no_summary_of_a_command_is_cut_in_80_columns(call: Callable[..., Any]) -> None:
    groups = {
        (): "Optimize:",
        ("store",): "Commands:",
        ("passes",): "Commands:",
    }
    for group, title in groups.items():
        commands = call(*group, "--help").out.partition(title)[2]
        assert commands
        assert "..." not in commands


def test_the_help_of_autoopt_groups_all_commands(call: Callable[..., Any]) -> None:
    page = call("--help").out
    places = [page.index(f"\n{title}:\n") for title in app.COMMAND_GROUPS]
    assert places == sorted(places)
    for name in app.COMMANDS:
        assert f"\n  {name} " in page


def test_the_help_of_run_groups_its_options_and_names_values_in_words(call: Callable[..., Any]) -> None:
    page = call("run", "--help").out
    titles = ("Options", "Data", "Goal", "Search", "Options for a model without a dag.yaml")
    places = [page.index(f"\n{title}:\n") for title in titles]
    assert places == sorted(places)
    assert places[1] < page.index("  --data PATH ") < places[2]
    assert places[3] < page.index("  --trials N ") < places[4]
    assert "  --engine inline|prefect " in page


@pytest.mark.parametrize("command", [("apply",), ("nights",), ("store", "verify"), ("run",)])
def test_no_help_names_types_of_python(call: Callable[..., Any], command: tuple[str, ...]) -> None:
    page = call(*command, "--help").out
    assert "<" not in page.partition("[x")[0].replace("<=", "")
    assert "str" not in page.split()


def commands() -> list[tuple[str, ...]]:
    """All commands and groups, with the commands of groups."""
    names: list[tuple[str, ...]] = []
    for name in sorted(app.COMMANDS):
        command = typer.main.get_command(app.build(name)).commands[name]
        names += [(name,), *((name, each) for each in getattr(command, "commands", ()))]
    return names


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_each_help_ends_with_examples_of_the_command_with_options_that_it_has(
    call: Callable[..., Any], command: tuple[str, ...]
) -> None:
    said = call(*command, "-h")
    assert (said.code, said.err) == (0, "")
    assert f"Usage: autoopt {' '.join(command)}" in said.out
    options, examples = said.out.split("Examples:\n")
    for example in examples.splitlines():
        assert example.split()[: 1 + len(command)] == ["autoopt", *command]
        for word in example.split():
            assert not word.startswith("-") or f"{word} " in options or f"{word}," in options, word


@pytest.mark.parametrize("arguments", [("--no-color", "runs"), ("runs", "--no-color")])
def test_no_color_is_told_to_all_libraries(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    call(*arguments)
    assert os.environ["NO_COLOR"] == "1"


def test_a_word_after_two_dashes_is_no_flag(call: Callable[..., Any]) -> None:
    assert "--verbose" in call("plan", "--", "--verbose").err
