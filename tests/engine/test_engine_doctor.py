"""The doctor examines the real installation and names a remedy for each problem."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

import pytest

from autoopt.engine.tools import doctor
from autoopt.engine.tools.doctor import examine
from autoopt.settings import Settings
from autoopt.store import open_store


def test_this_installation_has_no_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    open_store(home=tmp_path / "home").close()
    findings = {finding.check: finding for finding in examine(Settings(tmp_path / "home"))}
    assert {"python", "versions", "cpu", "disk", "database", "clock", "runtime", "prefect"} <= set(findings)
    assert [one for one in findings.values() if one.status == "problem" and one.check != "disk"] == []
    assert "CPU" in findings["runtime"].message


def test_problems_are_named_without_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://user:canary@127.0.0.1:9/api")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "autoopt.db").write_text("this is no database, and was never one " * 50)
    findings = {finding.check: finding for finding in examine(Settings(tmp_path / "home"))}
    assert findings["prefect"].status == "problem"
    assert "prefect server start" in findings["prefect"].remedy
    assert findings["database"].status == "problem"
    assert not any("canary" in repr(finding) for finding in findings.values())


def test_a_store_that_does_not_exist_yet_is_no_problem(tmp_path: Path) -> None:
    (finding,) = (one for one in examine(Settings(tmp_path / "none")) if one.check == "database")
    assert finding.status == "ok"
    assert "the first run creates it" in finding.message


def test_shared_artifacts_are_written_read_and_removed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    home = Settings(tmp_path / "home", artifacts_url=shared.as_uri())
    (finding,) = (one for one in examine(home) if one.check == "artifacts")
    assert (finding.status, "wrote, read and removed a file" in finding.message) == ("ok", True)
    assert [path for path in shared.rglob("*") if path.is_file()] == []


def test_shared_artifacts_that_cannot_be_written_are_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home = Settings(tmp_path / "home", artifacts_url=(tmp_path / "file").as_uri())
    (finding,) = (one for one in examine(home) if one.check == "artifacts")
    assert (finding.status, "cannot be written" in finding.message) == ("problem", True)


def test_unmet_requirements_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["numpy<1", "no-such-package", "absent; extra == 'x'"])
    (finding,) = (one for one in examine(Settings(tmp_path)) if one.check == "versions")
    assert finding.status == "problem"
    assert "numpy<1 is required" in finding.message
    assert "no-such-package is missing" in finding.message
    assert "absent" not in finding.message


@pytest.mark.parametrize("allowed", [True, False])
def test_a_busy_machine_names_what_would_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1e6, 1e6, 1e6))  # also for the largest machine
    monkeypatch.setattr(doctor, "can_go_first", lambda: allowed)
    (load,) = [finding for finding in examine(Settings(home=tmp_path)) if finding.check == "load"]
    assert "quiet machine" in load.remedy
    assert ("real-time priority" in load.remedy) is not allowed
