"""The address of the Prefect server, and what a command says without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from ports import free_port

from autoopt.errors import InputError
from autoopt.orchestrate.connection import (
    DEFAULTS,
    FILE,
    Serving,
    configured_api,
    connect,
    without_userinfo,
)

API = "http://127.0.0.1:4200/api"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", *DEFAULTS):
        monkeypatch.setenv(name, "")  # registered for removal
        monkeypatch.delenv(name)


def test_the_file_of_serve_is_readable_by_its_user_alone(tmp_path: Path) -> None:
    written = Serving(API, "me:canary", "/scripts")
    written.write(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert Serving.read(tmp_path) == written
    assert "canary" not in repr(written)


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", '{"api": 1, "auth": null}'])
def test_a_broken_file_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Serving.read(tmp_path) is None


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no Prefect server is running; start 'autoopt serve'") as error:
        connect(tmp_path)
    assert error.value.exit_code == 2
    Serving(f"http://127.0.0.1:{free_port()}/api").write(tmp_path)  # one that has ended
    with pytest.raises(InputError, match="no Prefect server is running; start 'autoopt serve'"):
        connect(tmp_path)


def test_the_profile_of_prefect_names_a_server_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.context import refresh_global_settings_context

    (tmp_path / "profiles.toml").write_text(f'active = "team"\n[profiles.team]\nPREFECT_API_URL = "{API}"\n')
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(tmp_path / "profiles.toml"))
    try:
        refresh_global_settings_context()
        assert configured_api() == API
        monkeypatch.delenv("PREFECT_PROFILES_PATH")
    finally:
        refresh_global_settings_context()
    assert configured_api() == ""


@pytest.mark.parametrize("password", ["can?ary", "can#ary", "can@ary/x", "12/canary"])
def test_an_address_whose_password_is_unclear_is_refused(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://user:{password}@host:4200/api")
    with pytest.raises(InputError, match=r"^PREFECT_API_URL: cannot be read; .*%XX$") as error:
        configured_api()
    assert "can" not in str(error.value).replace("cannot", "")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://user:canary@host:4200/api", "http://host:4200/api"),
        ("http://user:p@ss@host/api", "http://host/api"),
        ("http://user:p@ss/w:rd#1@host:4200/api", "http://***"),
        ("http://token@host/api", "http://host/api"),
        (API, API),
        ("", ""),
    ],
)
def test_an_address_is_shown_without_user_and_password(url: str, expected: str) -> None:
    assert without_userinfo(url) == expected
