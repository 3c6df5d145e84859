"""`autoopt passes new`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from micro_models import MODELS

from autoopt.errors import InputError
from autoopt.model import io
from autoopt.passes.catalogue.scaffold import new_pass
from autoopt.passes.runner import run

PAGE = Path(__file__).parents[2] / "docs" / "writing_a_pass.md"


EXAMPLES = re.findall(r"```python\n(# file: my_passes.py\n.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "my_passes.py"
    path.write_text("\n".join(EXAMPLES))
    return str(path)


def step(tmp_path: Path, script: str, name: str, model: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    proto = MODELS[model]()
    proto.doc_string = "a model with much to say about itself"
    payload = {
        "model": {"path": str(io.save(proto, tmp_path / "source"))},
        "steps": [{"pass": name, "params": params or {}}],
        "output": str(tmp_path / "out"),
        "user_script": script,
    }
    result: dict[str, Any] = run(payload)["steps"][0]
    return result


def test_new_writes_a_working_pass_with_its_test(tmp_path: Path) -> None:
    files = new_pass("my_first", tmp_path)
    assert [file.name for file in files] == ["my_first.py", "test_my_first.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(files[1])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert step(tmp_path, str(files[0]), "my_first", "no_ops")["outcome"] == "ok"


@pytest.mark.parametrize("name", ["Not-a-name", "class", "Upper", "a b"])
def test_new_requires_a_python_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a pass file"):
        new_pass(name, tmp_path)


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        new_pass("mine", tmp_path)
    assert not (tmp_path / "mine.py").exists()
