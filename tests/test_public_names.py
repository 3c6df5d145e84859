"""The public names of the package, for programs and for type checkers."""

from __future__ import annotations

import ast
from pathlib import Path

import autoopt


def test_type_checkers_see_the_names_that_programs_import() -> None:
    stub = ast.parse(Path(autoopt.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    sources: dict[str, str] = {}
    for statement in stub.body:
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                sources[alias.asname or alias.name] = f"{statement.module}:{alias.name}"
    expected: dict[str, str] = {}
    for name, source in autoopt._EXPORTS.items():
        expected[name] = source if ":" in source else f"{source}:{name}"
    assert sources == expected
    names = next(statement.value for statement in stub.body if isinstance(statement, ast.Assign))
    assert sorted(ast.literal_eval(names)) == autoopt.__all__


def test_public_names_are_listed_and_an_unknown_one_is_an_attribute_error() -> None:
    assert set(autoopt.__all__) <= set(dir(autoopt))
    assert not hasattr(autoopt, "trails")
