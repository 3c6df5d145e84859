"""The JSON of `autoopt passes list` is made from the code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from micro_models import MODELS

from autoopt.errors import InputError
from autoopt.model import io
from autoopt.passes.catalogue import new_pass, pass_entry
from autoopt.passes.runner import run
from autoopt.registry import registry


def test_entries_are_json_and_complete() -> None:
    for name in registry().names():
        entry = json.loads(json.dumps(pass_entry(registry().info(name))))
        assert set(entry) >= {
            "name", "family", "summary", "parameters", "requires", "conflicts", "accelerators", "available", "aliases",
        }  # fmt: skip
        assert entry["summary"], name
        for parameter in entry["parameters"]:
            assert set(parameter) >= {"name", "type", "default", "search"}
            assert parameter["description"], f"{name}.{parameter['name']}"


def test_conditional_values_list_their_cases() -> None:
    entry = pass_entry(registry().info("static_quantization"))
    activation = next(p for p in entry["parameters"] if p["name"] == "activation_type")
    assert activation["search"]["parents"] == ["quant_format", "weight_type"]
    assert activation["search"]["otherwise"] == "invalid"
    bins = next(p for p in entry["parameters"] if p["name"] == "num_bins")
    assert bins["default"]["otherwise"] == 2048


def test_required_and_conflicting_passes_exist() -> None:
    names = set(registry().names())
    for name in names:
        info = registry().info(name)
        assert set(info.requires) <= names, name
        assert set(info.conflicts) <= names, name


def test_new_writes_a_working_pass_with_its_test(tmp_path: Path) -> None:
    files = new_pass("my_first", tmp_path)
    assert [file.name for file in files] == ["my_first.py", "test_my_first.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(files[1])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    model = MODELS["no_ops"]()
    model.doc_string = "a model with notes"
    payload = {
        "model": {"path": str(io.save(model, tmp_path / "source"))},
        "steps": [{"pass": "my_first"}],
        "output": str(tmp_path / "out"),
        "user_script": str(files[0]),
    }
    assert run(payload)["steps"][0]["outcome"] == "ok"


@pytest.mark.parametrize("name", ["Not-a-name", "class", "Upper", "a b"])
def test_new_requires_a_python_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a pass file"):
        new_pass(name, tmp_path)


def test_new_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        new_pass("mine", tmp_path)
    assert not (tmp_path / "mine.py").exists()
