"""Passes by name: built-in ones, plug-ins and users' own; described without importing what they wrap."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from children import HANG_SECONDS

import autoopt.passes
from autoopt.errors import InputError
from autoopt.passes.base import Pass
from autoopt.registry import BUILT_IN, REQUIRED, Param, Registry, Unit, describe, info_from_json, info_to_json, registry
from autoopt.space import Categorical, ConditionalDefault


def sample(
    model: Any,
    block: Annotated[int, Categorical(16, 32), "size of a block", Unit("elements")] = 32,
    mode: Annotated[str, "what to do"] = "fast",
    file: Annotated[str, Param("path")] = "",
    needed: list[str] = REQUIRED,  # type: ignore[assignment]  # as an author writes it
) -> Any:
    """Do something to blocks.

    More words.
    """
    return model


@pytest.mark.parametrize(("name", "value", "good"), [
    ("block", 16, True), ("block", True, False), ("block", "16", False),
    ("needed", ["a"], True), ("needed", [1], False),
])  # fmt: skip
def test_values_are_checked_by_type_without_conversion(name: str, value: Any, good: bool) -> None:
    problem = describe("sample", sample).parameter(name).check(value)
    assert (problem is None) == good


def of_any_value(model: Any, value: object = None, other: Any = None) -> Any:
    return model


def test_every_pass_crosses_from_a_worker_as_json() -> None:
    for name in [*BUILT_IN, "of_any_value"]:
        info = registry().info(name) if name in BUILT_IN else describe(name, of_any_value)
        again = info_from_json(json.loads(json.dumps(info_to_json(info))))
        assert [p.name for p in again.parameters] == [p.name for p in info.parameters]
        assert [p.type for p in again.parameters] == [p.type for p in info.parameters]
        assert (again.requires, again.conflicts, again.missing) == (info.requires, info.conflicts, info.missing)
        for mine, theirs in zip(info.parameters, again.parameters, strict=True):
            if not isinstance(mine.default, ConditionalDefault) and mine.default is not REQUIRED:
                assert theirs.default == mine.default


def test_a_name_is_registered_once() -> None:
    own = Registry()
    own.add("sample", sample, "here")
    own.add("sample", sample, "here")
    with pytest.raises(InputError, match="registered twice"):
        own.add("sample", lambda model: model, "there")
    with pytest.raises(InputError, match="registered twice"):
        own.add("simplify", sample, "here")


PLUG_IN = """
from typing import Annotated
from autoopt import Pass, register

def fine(model):
    '''Fine.'''
    return model

class Hint(Pass):
    '''A hint that nobody knows.'''
    what: "Annotated[NoSuchType, 'x']" = 1

class Opaque(Pass):
    '''A default that is no JSON value.'''
    what: object = object()

class Mute:
    '''No pass at all.'''

@register("beside")
def beside(model):
    '''Registered by the module itself.'''
    return model

class Greedy(Pass):
    '''Wants the alias of another.'''
    aliases = ("fold_constants",)
"""
POINTS = """[autoopt.passes]
absent = no_such_module:thing
exits = exiting:thing
hint = fine_one:Hint
opaque = fine_one:Opaque
mute = fine_one:Mute
number = fine_one:PLAIN
simplify = fine_one:fine
fine = fine_one:fine
greedy = fine_one:Greedy
"""


def test_a_broken_plug_in_is_reported_and_harms_nothing_else(tmp_path: Path) -> None:
    package = tmp_path / "broken-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(POINTS)
    (tmp_path / "exiting.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "fine_one.py").write_text(f"{PLUG_IN}\nPLAIN = 3\n")
    script = (
        "import json\n"
        "from autoopt.passes.runner import describe\n"
        "from autoopt.registry import registry\n"
        "r = registry()\n"
        "infos = {name: r.info(name) for name in r.names()}\n"
        "assert (infos['fine'].origin, infos['fine'].source_digest) == ('plug-in broken', 'broken 1.0')\n"
        "assert infos['beside'].origin == 'plug-in broken' and infos['simplify'].origin == 'built-in'\n"
        "assert r.info('fold_constants').name == 'constant_folding' and 'greedy' in infos\n"
        "assert json.dumps(describe({})) and 'fine' in r.names()\n"
        "print(json.dumps({f.origin: f.reason for f in r.failures}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    told = {origin.rpartition(":")[2].strip(")"): reason for origin, reason in json.loads(done.stdout).items()}
    assert told.keys() == {"thing", "Hint", "Opaque", "Mute", "PLAIN", "fine"}
    assert "NoSuchType" in told["Hint"]
    assert "registered twice" in told["fine"]


def test_describing_all_passes_imports_none_of_what_they_wrap() -> None:
    script = (
        "import sys\n"
        "from autoopt.registry import registry\n"
        "r = registry(); [r.info(n) for n in r.names()]\n"
        "heavy = {'onnx', 'onnxruntime', 'numpy', 'onnxscript', 'onnxsim', 'torch', 'prefect', 'sqlalchemy'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


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
