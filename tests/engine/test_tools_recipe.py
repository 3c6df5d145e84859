"""Wrong recipes: one line with exit code 2."""

import json
import os
from pathlib import Path

import pytest

from autoopt.engine.run.package import RECIPE, with_digest
from autoopt.engine.tools.replay import read_recipe
from autoopt.errors import InputError

STEP = {"pass": "simplify", "params": {}}
GOOD = {"recipe": RECIPE, "source": "0" * 64, "result": "f" * 64, "steps": [STEP], "environment": {}}


def test_the_smallest_recipe(tmp_path: Path) -> None:
    recipe, document = read_recipe(written(tmp_path, with_digest(GOOD)))
    assert (recipe.pass_steps[0].pass_name, recipe.session["affinity"]) == ("simplify", [])
    assert document == with_digest(GOOD)
    assert read_recipe(tmp_path)[0] == recipe, "the package that holds it stands for it"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"steps": [{"pass": "evil", "params": {}}]}, "was edited after autoopt wrote it; use the original"),
        ({"digest": 7}, "was edited"),
        ({"recipe": 99}, f"has version 99, newer than {RECIPE}; upgrade autoopt"),
        ({"recipe": "x"}, "is not an autoopt recipe"),
        ({"steps": {}}, "is not an autoopt recipe"),
        ({"steps": ["simplify"]}, r"is not a valid recipe: steps\.0: expected an object"),
        ({"steps": [[]]}, r"steps\.0: expected an object"),
        ({"steps": [{"pass": "simplify"}]}, r"steps\.0: .*'params'"),
        ({"steps": [{"pass": 7, "params": {}}]}, r"steps\.0\.pass: expected str"),
        ({"steps": [{"pass": "simplify", "params": []}]}, r"steps\.0\.params: expected an object"),
        ({"steps": [{**STEP, "output": "../../etc"}]}, r"steps\.0\.output: expected 64 hexadecimal digits"),
        ({"steps": [{**STEP, "output": None}]}, r"steps\.0\.output: expected str"),
        ({"source": None}, "source: expected str"),
        ({"source": "../x"}, "source: expected 64 hexadecimal digits"),
        ({"result": 7}, "result: expected str"),
        ({"user_script": 7}, "user_script: expected str"),
        ({"user_script": "a\0b"}, "user_script: holds the character"),
        ({"data_root": []}, "data_root: expected str"),
        ({"scripts": {"x.py": 1}}, r"scripts\.x\.py: expected str"),
        ({"calibration": [1]}, "calibration: expected"),
        ({"calibration": {"path": 7}}, "calibration: data.path"),
        ({"calibration": {}}, "calibration: data: needs one of"),
        ({"accelerator": {"device": 7}}, r"accelerator\.device: expected str"),
        ({"accelerator": {"isa": 7}}, r"accelerator\.isa: expected a list"),
        ({"target": {"threads": "x"}}, r"target\.threads: expected int"),
        ({"affinity": ["x"]}, r"affinity\.0: expected int"),
        ({"session_options": {"graph_optimization_level": "most"}}, "session_options: "),
        ({"session_options": {"config": 7}}, "session_options: "),
        ({"environment": "x"}, "environment: expected an object"),
        ({"environment": {"libraries": "x"}}, r"environment\.libraries: expected an object"),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path: Path, edit: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=rf"^[^\n]*recipe\.json:1: [^\n]*{reason}[^\n]*$"):
        read_recipe(written(tmp_path, {**with_digest(GOOD), **edit}))


def test_a_recipe_cannot_lose_its_digest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="was edited"):
        read_recipe(written(tmp_path, {**GOOD, "chain": "another"}))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"recipe\.json:1: is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b'{\n"recipe": 1,\n"recipe": 1}', r"recipe\.json:3: duplicate key"),
        (b"[" * 100_000, "nested|deep"),
        (b'{"recipe": NaN}', "is not a JSON number"),
        (b"7", "is not an autoopt recipe"),
        (b" " * (17 << 20), "is larger than 16 MiB"),
    ],
)
def test_what_is_no_recipe_is_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "recipe.json").write_bytes(content)
    with pytest.raises(InputError, match=reason):
        read_recipe(tmp_path / "recipe.json")


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in ((tmp_path, "no such file"), (tmp_path / "pipe", "not a regular"), (Path("x"), "no such")):
        with pytest.raises(InputError, match=reason):
            read_recipe(path)


def written(folder: Path, document: object) -> Path:
    """A recipe file with this document."""
    file = folder / "recipe.json"
    file.write_text(json.dumps(document))
    return file
