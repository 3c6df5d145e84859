from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from builders import mlp, write

from autoopt.workers.environ import LENT_MODULES, child_environment, use_lent_modules


def test_secrets_and_prefect_are_not_a_workers_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DB_URL", "postgresql://u:canary@h/d")
    monkeypatch.setenv("PREFECT_API_KEY", "canary")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    env = child_environment(sys.executable, {"EXTRA": "1"})
    assert "canary" not in str(env)
    assert (env["LD_LIBRARY_PATH"], env["EXTRA"], env["PYTHONHASHSEED"]) == ("/opt/lib", "1", "0")


def test_our_module_path_stays_with_our_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    assert child_environment(sys.executable)["PYTHONPATH"] == "/mine"
    assert "PYTHONPATH" not in child_environment("/other/python")


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    assert child_environment(sys.executable)["TOKENIZERS_PARALLELISM"] == "true"


def test_the_runtime_reports_nothing_to_its_makers(tmp_path: Path) -> None:
    """onnxruntime's telemetry leaves a file of its session in the temporary folder."""
    env = {**child_environment(sys.executable), "TMPDIR": str(tmp_path)}
    made = write(mlp(width=8), tmp_path / "model")
    code = "import onnxruntime, sys; onnxruntime.InferenceSession(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(made)], env=env, check=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


def test_lent_modules_come_last_and_only_for_the_same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    lent = child_environment("/other/python", lend=True)[LENT_MODULES]
    version, *folders = lent.split(":")
    assert version == f"{sys.version_info[0]}.{sys.version_info[1]}"
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", ["own"])
    monkeypatch.setenv(LENT_MODULES, "2.7:elsewhere")
    use_lent_modules()
    assert sys.path == ["own"]
    monkeypatch.setenv(LENT_MODULES, lent)
    use_lent_modules()
    assert sys.path == ["own", *folders]
    assert set(folders) <= set(before)
    assert child_environment("/other/python", lend=True)[LENT_MODULES].startswith(version)
    assert LENT_MODULES not in child_environment(sys.executable)  # a pool of a worker lends for itself
