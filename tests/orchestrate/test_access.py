"""Access to the server of `autoopt serve`: its password and the pages that may call it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autoopt.orchestrate.server.access import (
    PASSWORD_FILE,
    is_loopback,
    local_url,
    make_password,
    page_settings,
    read_password,
    web_settings,
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PREFECT_UI_URL", *web_settings("http://127.0.0.1:1", has_password=False)):
        monkeypatch.delenv(name, raising=False)


def test_a_password_is_kept_for_this_user_alone(tmp_path: Path) -> None:
    assert read_password(tmp_path) is None
    made = make_password(tmp_path)
    assert read_password(tmp_path) == made
    assert (tmp_path / PASSWORD_FILE).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [PASSWORD_FILE]
    assert len(made.removeprefix("autoopt:")) >= 32
    assert make_password(tmp_path) != made


def test_only_the_pages_of_the_server_may_call_it() -> None:
    settings = web_settings("http://127.0.0.1:4200", has_password=True)
    allowed = "http://127.0.0.1:4200,http://localhost:4200"
    assert settings == {"PREFECT_SERVER_CORS_ALLOWED_ORIGINS": allowed}


def test_a_public_address_of_the_pages_counts_as_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_UI_URL", "https://models.example/prefect")
    settings = web_settings("http://192.0.2.7:4200", has_password=True)
    assert settings["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "http://192.0.2.7:4200,https://models.example"


def test_without_a_password_changes_need_a_token_of_the_pages() -> None:
    settings = web_settings("http://[::1]:4200", has_password=False)
    assert settings["PREFECT_SERVER_CSRF_PROTECTION_ENABLED"] == "true"


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "https://mine.example")
    settings = web_settings("http://127.0.0.1:4200", has_password=True)
    assert settings["PREFECT_SERVER_CORS_ALLOWED_ORIGINS"] == "https://mine.example"


@pytest.mark.parametrize(
    ("host", "loopback", "url"),
    [
        ("127.0.0.1", True, "http://127.0.0.1:42"),
        ("::1", True, "http://[::1]:42"),
        ("localhost", True, "http://localhost:42"),
        ("0.0.0.0", False, "http://127.0.0.1:42"),
        ("::", False, "http://[::1]:42"),
        ("example.org", False, "http://example.org:42"),
        ("", False, "http://:42"),
    ],
)
def test_addresses(host: str, loopback: bool, url: str) -> None:
    assert (is_loopback(host), local_url(host, 42)) == (loopback, url)


def test_pages_are_kept_in_the_home_where_prefect_is_installed_for_all_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_UI_STATIC_DIRECTORY", raising=False)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert page_settings(tmp_path) == {}
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # for root, every folder is writable
    assert page_settings(tmp_path) == {"PREFECT_UI_STATIC_DIRECTORY": str(tmp_path)}
    monkeypatch.setenv("PREFECT_UI_STATIC_DIRECTORY", "/mine")
    assert page_settings(tmp_path) == {"PREFECT_UI_STATIC_DIRECTORY": "/mine"}
