"""The table of numbers that steer: each is used and explained, and the commands of its experiments exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from autoopt import tuning

ROOT = Path(tuning.__file__).parents[1]
RECORDS = [node for node in ast.parse(Path(tuning.__file__).read_text()).body if isinstance(node, ast.ClassDef)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_every_number_is_explained_and_used(record: ast.ClassDef) -> None:
    package = "".join(file.read_text() for file in (ROOT / "autoopt").rglob("*.py"))
    _, *body = record.body
    for field, text in zip(body[::2], body[1::2], strict=True):
        assert isinstance(field, ast.AnnAssign)
        assert isinstance(field.target, ast.Name)
        assert isinstance(text, ast.Expr)
        assert f"{record.name.upper()}.{field.target.id}" in package


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_the_command_that_repeats_the_experiments_exists(record: ast.ClassDef) -> None:
    named = re.findall(r"`(?:python (?:-m )?)?((?:benchmarks|tests)[\w./]*)", ast.get_docstring(record) or "")
    assert named
    for name in named:
        path = ROOT / (name if "/" in name else name.replace(".", "/"))
        assert path.exists(), path
