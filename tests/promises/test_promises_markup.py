"""Names that hold markup or commands: pages, Markdown and the commands to paste show them as the text that they are."""

from __future__ import annotations

import html.parser
import re
import shlex
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import markdown
import pytest
from outside import DAG, RUN, Place, write_model

pytestmark = pytest.mark.service

HOSTILE = "<img src=x onerror=alert(1)>|`touch pwned`$(touch pwned);touch pwned;[a](javascript:alert)'\"&*b*\x1b[31m"
"""HTML, a table's border, Markdown, commands of a shell, quotes, and a colour of a terminal; a file may be named so."""
OUT = f"out {HOSTILE[:-5]}"
"""Without the colour, which a command to paste cannot hold."""
ZOO = "name: zoo\ndag: dag.yaml\nmodels: [model.onnx]\n"


class Page(html.parser.HTMLParser):
    """Tags and attributes of a page that run or fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.alive += [f"{name}={value}" for name, value in attrs if name.startswith("on") and "alert" in (value or "")]
        self.alive += [f"{name}={value}" for name, value in attrs if (value or "").startswith("javascript:alert")]
        self.alive += [tag for name, value in attrs if (tag, name, value) == ("img", "src", "x")]


def alive(text: str) -> list[str]:
    page = Page()
    page.feed(text)
    return page.alive


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A run in a folder with a hostile name, its package in another such folder, its report, and a sweep."""
    place = Place(tmp_path_factory.mktemp("made") / HOSTILE)
    write_model(place / "model.onnx", width=512)
    write_model(place / HOSTILE / "model.onnx", width=512)
    place.write("dag.yaml", DAG)
    place.write("zoo.yaml", ZOO)
    place.write("said", place.call(*(word for word in RUN if word != "--json"), "--out", OUT).out)
    place.call("report", "--out", "report.html")
    place.call("sweep", "zoo.yaml", "--engine", "inline", "--out", "swept")
    place.call("check", "zoo.yaml", "--junit", "junit.xml", "--summary", "summary.md")
    return place


def test_pages_show_names_as_text(made: Place) -> None:
    pages = [made / "report.html", *(made / "swept").rglob("*.html")]
    assert len(pages) >= 3
    assert {path: alive(path.read_text()) for path in pages} == {path: [] for path in pages}
    ElementTree.fromstring((made / "junit.xml").read_text())


@pytest.mark.parametrize("where", ["out*/README.md", "summary.md"])
def test_markdown_shows_names_as_text(where: str, made: Place) -> None:
    (path,) = made.folder.glob(where)
    shown = markdown.markdown(path.read_text(), extensions=["tables", "fenced_code"])
    assert alive(shown) == []
    assert "<em>b</em>" not in shown


def test_the_command_that_tries_a_package_can_be_pasted(made: Place, tmp_path: Path) -> None:
    (command,) = re.findall(r"Try it: (.*)", (made / "said").read_text())
    assert shlex.split(command) == ["python", f"{OUT}/run.py"]
    assert pasted(command, tmp_path) == [f"{OUT}/run.py"]


def test_the_commands_of_a_report_can_be_pasted(made: Place, tmp_path: Path) -> None:
    text = html.unescape((made / "report.html").read_text())
    found = re.findall(r"autoopt (?:replay|run|export|best) [^\n]*?--model [^\n]*?model\.onnx'?", text)
    assert found
    for command in found:
        assert str(made / "model.onnx") in pasted(command, tmp_path)


def pasted(command: str, folder: Path) -> list[str]:
    """The arguments that the first word of a command gets from a shell, which runs nothing else."""
    for name in ("autoopt", "python"):
        (folder / name).write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
        (folder / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder, env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True
    )
    assert not (folder / "pwned").exists()
    return done.stdout.decode().split("\0")[:-1]


def test_terminals_get_no_control_characters(made: Place) -> None:
    for words in (
        ("runs",),
        ("runs", "latest"),
        ("lineage",),
        ("report", "--out", "again.html"),
        ("plan", HOSTILE),
        ("init", HOSTILE),
    ):
        said = made.call(*words, codes=(0, 1, 2))
        assert "\x1b[31m" not in said.out + said.err


def test_nothing_was_run(made: Place) -> None:
    assert not list(made.folder.parent.rglob("pwned"))
