"""What the README shows, done."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoopt.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The first fenced block of that language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def test_the_dag_is_one(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "digits").symlink_to(ROOT / "dags" / "digits")
    (tmp_path / "dag.yaml").write_text(block("yaml"))
    code, out, err = call("plan", "dag.yaml")
    assert (code, err) == (0, "")
    assert "cpu-int8: 4 chains" in out


def test_every_way_to_give_the_graph_is_one(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "digits").symlink_to(ROOT / "dags" / "digits")
    for way in ("chains", "edges"):
        text = re.sub(r"^stages:", "# stages:", block("yaml"), flags=re.MULTILINE)
        (tmp_path / "dag.yaml").write_text(re.sub(rf"^# {way}:", f"{way}:", text, flags=re.MULTILINE))
        assert "cpu-int8: 2 chains" in call("plan", "dag.yaml").out


def test_the_plan_that_is_shown(call: Callable[..., Any]) -> None:
    out = call("plan", str(ROOT / "dags" / "six_pass.yaml")).out
    shown = README.partition("$ autoopt plan dags/six_pass.yaml\n")[2].partition("...")[0]
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert len(lines) == 4
    assert out.splitlines()[:4] == [line.removeprefix("    ") for line in shown.splitlines()[:4]]


def test_every_command_named_exists() -> None:
    named = set(re.findall(r"(?:`|^ {4})(?:\$ )?autoopt ([a-z-]+)", README, re.MULTILINE))
    assert named <= set(COMMANDS)
    assert {"plan", "run", "best", "lineage"} <= named


def test_every_linked_file_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_python_example_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    example = block("python")
    settings = '{"seconds": 0.05, "replicas": 1, "target_width": 1.0, "rounds": 0}'
    quick = example.replace("out=None", f"out=None, measurement={settings}")
    assert quick != example
    script = home.parent / "example.py"
    script.write_text(quick)
    monkeypatch.setenv("AUTOOPT_HOME", str(home))
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(script))
    assert "Estimate(value=" in capfd.readouterr().out
