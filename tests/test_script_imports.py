"""The modules that user scripts import."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from autoopt.passes.execution import user_code
from autoopt.script import load_script
from autoopt.script_imports import imported_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that scripts can import; its modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def imports(folder: Path, script: str) -> list[str]:
    (folder / "script.py").write_text(script)
    load_script(folder / "script.py")
    return [str(file.relative_to(folder)) for file in imported_files(folder / "script.py")]


def test_modules_count_through_each_other_and_within_functions(folder: Path) -> None:
    write(folder, {"one.py": "import two\n", "two.py": "import one\n", "late.py": "", "unused.py": ""})
    assert imports(folder, "import one\n\ndef later():\n    import late\n") == ["late.py", "one.py", "two.py"]


def test_modules_of_packages_count(folder: Path) -> None:
    write(folder, {
        "tools/__init__.py": "from . import inner\n",
        "tools/inner.py": "from .deep.last import VALUE\n",
        "tools/deep/__init__.py": "",
        "tools/deep/last.py": "from ..sibling import VALUE\n",
        "tools/sibling.py": "VALUE = 1\n",
        "tools/unused.py": "",
    })  # fmt: skip
    expected = ["__init__.py", "deep/__init__.py", "deep/last.py", "inner.py", "sibling.py"]
    assert imports(folder, "from tools import inner\n") == [f"tools/{name}" for name in expected]


def test_installed_modules_and_unknown_ones_do_not_count(folder: Path) -> None:
    text = "import json, numpy.linalg, autoopt.api\ntry:\n    import no_such.module\nexcept ImportError:\n    pass\n"
    assert imports(folder, text) == []


def test_the_content_of_a_script_changes_with_its_imports(folder: Path) -> None:
    write(folder, {"script.py": "import one\n", "alone.py": "", "one.py": "VALUE = 1\n"})
    before = user_code.load(str(folder / "script.py")).digest
    alone = user_code.load(str(folder / "alone.py"))
    user_code._cache.clear()
    write(folder, {"one.py": "VALUE = 2\n"})
    assert user_code.load(str(folder / "script.py")).digest != before
    assert user_code.load(str(folder / "alone.py")).digest == alone.digest
    assert alone.imports == {}
