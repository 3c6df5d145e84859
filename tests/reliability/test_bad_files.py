"""A hundred bad config and zoo files through the commands that read them: a line for each mistake, at once."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import HANG_SECONDS
from commands import DAG

from autoopt.cli.app import main
from autoopt.settings import settings

ZOO = "name: z\ndag: dag.yaml\nmodels:\n  - {path: model.onnx, name: a}\n"


def bad_dags() -> list[str]:
    """Sixty and more: each line of a good file broken in several ways, and files that are something else."""
    lines = DAG.splitlines(keepends=True)

    def changed(index: int, line: str) -> str:
        return "".join([*lines[:index], line, *lines[index + 1 :]])

    found = [changed(i, f"&x{i} {line}") for i, line in enumerate(lines)]
    found += [changed(i, line + f"zz{i}: 1\n") for i, line in enumerate(lines)]
    found += [changed(i, line.replace(":", "\x01:", 1)) for i, line in enumerate(lines) if ":" in line]
    found += [
        changed(i, line.replace(": ", ": !!python/name:os.system ", 1)) for i, line in enumerate(lines) if ": " in line
    ]
    found += [changed(i, "\t" + line) for i, line in enumerate(lines)]
    found += [changed(i, line.replace(": ", ": *x ", 1)) for i, line in enumerate(lines) if ": " in line]
    found += [DAG * 2, DAG + "---\n" + DAG, DAG.replace("[", "{"), DAG.replace("{pass", "{pas"), DAG + "a: *b\n"]
    found += ["", "\0", "[]", "3", "- a\n", '{"name": 3}', "a: " + "[" * 500, "x: " + "9" * 100_000, "a: .inf\n"]
    found += ["a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", DAG.replace("quant]", "quant, quant]"), "<<: {a: 1}\n"]
    found += [
        DAG.replace("metric: size", "metric: sice"),
        DAG.replace("trials: 4", "trials: -4"),
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        "name: " + "n" * 200 + "\n",
    ]
    return found  # fmt: skip


def bad_zoos() -> list[str]:
    changes = [
        ("models:", "modles:"), ("{path: model.onnx", "{pth: model.onnx"), ("model.onnx", "nowhere.onnx"),
        ("- {path: model.onnx, name: a}", "[]"), ("name: a", "name: a, tags: 3"), ("dag:", "dga:"),
        ("name: a", "name: a, search: {x: 1}"), ("name: a", "name: '../a'"), ("name: z", "name: [z]"),
        ("- {", "- &a {"), ("model.onnx", "no*thing.onnx"), ("dag: dag.yaml", "dag: nowhere.yaml"),
        ("name: a}", "name: a}\n  - {path: model.onnx, name: a}"),
    ]  # fmt: skip
    return [ZOO.replace(old, new, 1) for old, new in changes]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    settings.cache_clear()
    (tmp_path / "dag.yaml").write_text(DAG)
    (tmp_path / "model.onnx").write_bytes(b"not read")
    return tmp_path


def test_a_hundred_bad_files_are_a_hundred_lines(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [("plan", text) for text in bad_dags()] + [("sweep", text) for text in bad_zoos()]
    assert len(jobs) >= 100
    for number, (_, text) in enumerate(jobs):
        (folder / f"bad{number}.yaml").write_text(text)
    for command in ("plan", "sweep"):  # imports are no part of it
        main([command, "nowhere.yaml"])
    capfd.readouterr()
    took = []
    for number, (command, text) in enumerate(jobs):
        name = f"bad{number}.yaml"
        began = time.process_time()
        code = main([command, name])
        took.append(time.process_time() - began)
        out, err = capfd.readouterr()
        assert (code, out) == (2, ""), (text, out, err)
        lines = err.splitlines()
        assert lines
        for line in lines:
            assert re.match(rf"(\S*/)?{name}:\d+: ", line), (text, err)
            assert line.isprintable()
    assert max(took) < 1.0
    assert sum(took) < 5.0  # 0.7 s where the machine is quick
    assert not (folder / "home").exists()


BOMBS = ("a: " + "[" * 100_000, "x: " + "9" * 1_000_000, "- a\n" * 500_000, '{"a":' * 100_000)


COMMAND = """
import re, sys
from autoopt.cli.app import main
code = main(["plan", "bomb.yaml"])
print(code, re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""


@pytest.mark.parametrize("text", BOMBS)
def test_a_bomb_is_refused_before_it_grows(text: str, folder: Path) -> None:
    (folder / "bomb.yaml").write_text(text)
    done = subprocess.run([sys.executable, "-c", COMMAND], capture_output=True, text=True, timeout=HANG_SECONDS)
    code, kilobytes = done.stdout.split()
    assert (code, done.stderr.count("\n")) == ("2", 1)
    assert int(kilobytes) < 200_000
