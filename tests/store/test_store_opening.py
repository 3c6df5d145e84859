"""Opening the store that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.settings import settings
from autoopt.store import open_store


@pytest.fixture(autouse=True)
def fresh_settings() -> Iterator[None]:
    settings.cache_clear()
    yield
    settings.cache_clear()


def test_the_default_is_a_sqlite_file_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    with open_store() as store:
        assert store.home == tmp_path / "home"
        assert store.runs.all() == ()
    assert (tmp_path / "home" / "autoopt.db").is_file()


def test_the_environment_names_another_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DB_URL", f"sqlite:///{tmp_path / 'other.db'}")
    with open_store(home=tmp_path / "home") as store:
        assert store.safe_url.endswith("other.db")
    assert not (tmp_path / "home" / "autoopt.db").exists()


def test_arguments_override_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_DB_URL", "postgresql://nobody@nowhere.invalid/db")
    with open_store(f"sqlite:///{tmp_path / 'mine.db'}", tmp_path) as store:
        assert store.safe_url.endswith("mine.db")


def test_a_relative_home_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    with open_store(home=Path("here")) as store:
        assert store.home == tmp_path / "here"


def test_artifacts_are_shared_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOOPT_ARTIFACTS_URL", f"file://{tmp_path}/shared")
    monkeypatch.delenv("AUTOOPT_DB_URL", raising=False)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.onnx").write_bytes(b"graph")
    with open_store(home=tmp_path / "one") as store:
        digest = store.artifacts.put(tmp_path / "model")
    with open_store(f"sqlite:///{tmp_path}/one/autoopt.db", tmp_path / "two") as store:
        assert store.artifacts.path(digest).read_bytes() == b"graph"


def test_a_wrong_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mysql"):
        open_store("mysql://host/db", tmp_path)
