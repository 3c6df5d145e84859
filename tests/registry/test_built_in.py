"""The list of built-in passes is complete, and each entry is what the list says."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import autoopt.passes
from autoopt.passes.base import Pass
from autoopt.registry import BUILT_IN, registry

NOT_LISTED = {"Sequence", "Repeat", "FunctionPass", "Static", "LibraryCleanup", "Rewriting"}
"""Wrappers around passes, and a base of several."""
PASSES = Path(autoopt.passes.__file__).parent


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_entry_names_a_pass(name: str) -> None:
    module, _, attribute = BUILT_IN[name].partition(":")
    code = getattr(importlib.import_module(module), attribute)
    assert code is registry().get(name)
    assert inspect.isclass(code)
    assert issubclass(code, Pass)
    assert code.__module__ == module, "the entry names the module that defines the pass"


def test_no_two_names_stand_for_one_class() -> None:
    assert len(set(BUILT_IN.values())) == len(BUILT_IN)


def test_names_are_lower_case_words() -> None:
    assert all(name.replace("_", "").isalnum() and name == name.lower() for name in BUILT_IN)


def test_every_concrete_pass_of_the_package_is_listed() -> None:
    listed = {dotted.partition(":")[2] for dotted in BUILT_IN.values()}
    unlisted = set()
    for file in PASSES.rglob("*.py"):
        classes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
        for node in classes:
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            if "run" in methods and "Pass" in {getattr(base, "id", "") for base in node.bases}:
                unlisted |= {node.name} - listed
    assert unlisted <= NOT_LISTED, "a class with `run` is a pass: list it, or give it another base"
