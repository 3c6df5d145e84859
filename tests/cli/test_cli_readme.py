"""What the README, the tutorial and the page on dag.yaml show, done."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
DAG_PAGE = (ROOT / "docs" / "howto" / "dag.md").read_text(encoding="utf-8")


def block(text: str, language: str, first_line: str = "") -> str:
    """The first fenced block of that language that begins with a line."""
    found = re.search(rf"^```{language}\n({re.escape(first_line)}.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


def test_the_dag_is_one(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "digits").symlink_to(ROOT / "dags" / "digits")
    (tmp_path / "dag.yaml").write_text(block(DAG_PAGE, "yaml"))
    code, out, err = call("plan", "dag.yaml")
    assert (code, err) == (0, "")
    assert "cpu-int8: 4 chains" in out


def test_every_way_to_give_the_graph_is_one(call: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "digits").symlink_to(ROOT / "dags" / "digits")
    for way in ("chains", "edges"):
        text = re.sub(r"^stages:", "# stages:", block(DAG_PAGE, "yaml"), flags=re.MULTILINE)
        (tmp_path / "dag.yaml").write_text(re.sub(rf"^# {way}:", f"{way}:", text, flags=re.MULTILINE))
        assert "cpu-int8: 2 chains" in call("plan", "dag.yaml").out


def test_the_plan_that_is_shown(call: Callable[..., Any]) -> None:
    out = call("plan", str(ROOT / "dags" / "six_pass.yaml")).out
    shown = DAG_PAGE.partition("$ autoopt plan dags/six_pass.yaml\n")[2].partition("...")[0]
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    assert len(lines) == 5
    assert out.splitlines()[:5] == [line.removeprefix("    ") for line in shown.splitlines()[:5]]


def test_the_programs_of_the_readme_and_the_tutorial_run(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    example = block(README, "python")
    settings = '{"seconds": 0.05, "replicas": 1, "target_width": 1.0, "rounds": 0}'
    quick = example.replace("out=None", f"measurement={settings}")
    assert quick != example
    programs = [quick]
    programs += [block(TUTORIAL, "python", f"# file: {name}") for name in ("look.py", "read_digits.py")]
    (home.parent / "dags").symlink_to(ROOT / "dags")
    monkeypatch.setenv("AUTOOPT_HOME", str(home))
    for number, program in enumerate(programs):
        script = home.parent / f"example_{number}.py"
        script.write_text(program)
        runpy.run_path(str(script))
    out = capfd.readouterr().out
    assert "Estimate(value=" in out
    assert block(TUTORIAL, "text", "image float32") in out
    assert re.search(r"^These digits are( \d){10}$", out, re.MULTILINE)
