"""Links, commands and snippets of all pages of the documentation."""

from __future__ import annotations

import ast
import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml

from autoopt.cli.app import COMMANDS, build
from autoopt.data import DataConfig
from autoopt.data.opening import open_data
from autoopt.spec.zoo import load_zoo

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if page.name != "CHANGELOG.md"]
GENERATED = ("reference/",)
"""Pages that exist only in the site."""


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE)


def named_block(page: str, language: str, name: str) -> str:
    [found] = [block for block in blocks(page, language) if block.startswith(f"# file: {name}\n")]
    return found


@cache
def options(name: str, *words: str) -> frozenset[str]:
    """The options of a command, from its help."""
    output = io.StringIO()
    with redirect_stdout(output):
        command = typer.main.get_command(build(name))
        command.main(args=[name, *words, "--help"], prog_name="autoopt", standalone_mode=False)
    return frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", output.getvalue()))


def command_lines(page: str) -> Iterator[list[str]]:
    """The words of each command line of autoopt in indented blocks."""
    for line in re.findall(r"^ {4}(?:\$ )?(autoopt .*)$", text(page), re.MULTILINE):
        yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", NAMES)
def test_every_linked_file_exists(page: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text(page)) if "://" not in link]
    for link in links:
        target = (ROOT / page).parent / link
        if not any(part in link for part in GENERATED):
            assert target.exists(), link


@pytest.mark.parametrize("page", NAMES)
def test_commands_and_options_exist(page: str) -> None:
    for name in re.findall(r"`autoopt ([a-z][a-z-]*)", text(page)):
        assert name in COMMANDS, name
    for words in command_lines(page):
        name, *rest = words
        assert name in COMMANDS, words
        subcommands = rest[:1] if name in ("passes", "store") else []
        known = options(name, *subcommands)
        if "--inputs" in known:  # others about data are listed once
            known |= options("data")
        for word in rest:
            if word.startswith("-"):
                assert word in known | {"--verbose", "--debug", "--no-color"}, words


@pytest.mark.parametrize("page", NAMES)
def test_snippets_can_be_parsed(page: str) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)
    for block in blocks(page, "yaml"):
        yaml.safe_load(block)


def test_the_zoo_of_the_guide_is_one() -> None:
    zoo = yaml.safe_load(named_block("docs/howto/nightly.md", "yaml", "zoo.yaml"))
    assert len(load_zoo(zoo).models) == 2


def test_the_arrays_of_the_guide_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(named_block("docs/howto/data.md", "python", "arrays.py"), {})
    data = open_data({"path": str(tmp_path / "test.npz")})
    assert (list(data.columns), len(data)) == (["image"], 300)
    assert data.labels is not None


def test_the_loader_of_the_guide_loads_its_files(tmp_path: Path) -> None:
    (tmp_path / "vibration.py").write_text(named_block("docs/howto/data.md", "python", "vibration.py"))
    folder = tmp_path / "recordings"
    folder.mkdir()
    for name in ("good_1.raw", "broken_1.raw"):
        np.arange(800, dtype=np.int16).tofile(folder / name)
    example = next(block for block in blocks("docs/howto/data.md", "yaml") if "vibration" in block)
    config = yaml.safe_load(example)["data"]["evaluation"]
    config["load_dataset"]["params"]["path"] = str(folder)
    config["user_script"] = str(tmp_path / "vibration.py")
    data = open_data(DataConfig.parse(config))
    assert data.columns["signal"].shape == (2, 16000)
    assert data.labels is not None
    assert len(set(data.labels)) == 2


def test_each_promise_names_its_tests() -> None:
    rows = [line.split(" | ") for line in text("docs/reliability.md").splitlines() if line.startswith("| ")][1:]
    files = {path.name for path in ROOT.glob("tests/**/test_*.py")}
    assert len(rows) > 20
    for promise, _, tests, *_ in rows:
        named = re.findall(r"`(?:tests/(?:\w+/)*)?(test_\w+\.py)`", tests)
        assert named, promise
        assert set(named) <= files, promise
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text("docs/reliability.md")):
        assert (ROOT / path).is_file(), path
