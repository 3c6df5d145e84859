"""The doctor looks at the real installation, and says what to do about what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.engine.tools.doctor import examine
from autoopt.settings import Settings
from autoopt.store import open_store


def test_this_installation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    open_store(home=tmp_path / "home").close()
    found = {finding.check: finding for finding in examine(Settings(tmp_path / "home"))}
    assert {"python", "versions", "cpu", "disk", "database", "clock", "runtime", "prefect"} <= set(found)
    assert [f for f in found.values() if f.status == "problem" and f.check != "disk"] == []
    assert "CPU" in found["runtime"].said


def test_what_does_not_work_is_said_without_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://user:canary@127.0.0.1:9/api")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "autoopt.db").write_text("this is no database, and was never one " * 50)
    found = {finding.check: finding for finding in examine(Settings(tmp_path / "home"))}
    assert found["prefect"].status == "problem"
    assert "prefect server start" in found["prefect"].remedy
    assert found["database"].status == "problem"
    assert not any("canary" in repr(finding) for finding in found.values())


def test_the_place_of_shared_artifacts_is_tried(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    home = Settings(tmp_path / "home", artifacts_url=shared.as_uri())
    (found,) = (f for f in examine(home) if f.check == "artifacts")
    assert (found.status, "written, read and removed" in found.said) == ("ok", True)
    assert [p for p in shared.rglob("*") if p.is_file()] == []
    (tmp_path / "file").touch()
    home = Settings(tmp_path / "home", artifacts_url=(tmp_path / "file").as_uri())
    (found,) = (f for f in examine(home) if f.check == "artifacts")
    assert (found.status, "cannot be written" in found.said) == ("problem", True)
