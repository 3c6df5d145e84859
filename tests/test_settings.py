from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.settings import (
    Settings,
    redacted,
    root_of_data,
    root_to_store,
    settings,
    without_password,
    without_passwords,
)


def test_defaults() -> None:
    found = Settings.read({"AUTOOPT_HOME": "", "AUTOOPT_DB_URL": ""})
    assert found == Settings(home=Path.cwd() / ".autoopt")


def test_environment_is_read_and_secrets_stay_out_of_repr() -> None:
    url = "postgresql://user:canary@host/db"
    found = Settings.read({"AUTOOPT_HOME": "/a/b", "AUTOOPT_DB_URL": url})
    assert (found.home, found.db_url) == (Path("/a/b"), url)
    assert "canary" not in repr(found)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:canary@h:5432/db", "postgresql+psycopg://me:***@h:5432/db"),
        ("postgresql://h/db?password=canary", "postgresql://h/db?***"),
        ("postgresql://me:can@ary@h/db", "postgresql://me:***@h/db"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("http://[canary", "***"),
        ("canary", "***"),
        ("postgresql://me:can/ary@h/db", "postgresql://***"),
        ("postgresql://me:can?ary@h/db", "postgresql://***"),
        ("postgresql://me:12/canary@h/db", "postgresql://***"),
        ("https://canary@h/model.onnx", "https://***@h/model.onnx"),
        ("https://h/model.onnx?sig=canary#x", "https://h/model.onnx?***"),
        ("zip://m.onnx::https://me:canary@h/x.zip?canary", "zip://m.onnx::https://me:***@h/x.zip?***"),
        ("simplecache::s3://key:canary@bucket/a@b.onnx", "simplecache::s3://***"),  # the password may hold the `/`
        ("https://me:p@ss/w:canary#1@h/m.onnx", "https://***"),
        ("hf://canary@datasets/org/name@main/a.onnx", "hf://***@datasets/org/name@main/a.onnx"),
        ("hf://org/name@main/a.onnx", "hf://org/name@main/a.onnx"),
        (
            "abfs://container@account.dfs.core.windows.net/a.onnx",
            "abfs://container@account.dfs.core.windows.net/a.onnx",
        ),
        ("s3://bucket/a@b.onnx", "s3://bucket/a@b.onnx"),
    ],
)
def test_without_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


AROUND = st.text(alphabet="@/:?#[]%&=+ ;,$!'x1", max_size=6)


@given(
    st.sampled_from(["https", "s3", "hf", "postgresql", "gs", "ftp"]), AROUND, AROUND, st.sampled_from(["", "?a=b@c"])
)
def test_no_part_of_a_password_is_shown(scheme: str, before: str, after: str, query: str) -> None:
    password = f"{before}canary{after}"
    assume("::canary://" not in password)  # a chain of addresses
    url = f"{scheme}://me:{password}@host/folder/model.onnx{query}"
    quoted = f"{scheme}://me:{quote(password, safe='')}@host/model.onnx"
    for address in (url, quoted, f"zip://a.onnx::{url}", f"{scheme}://host/model.onnx?key={password}"):
        assert "canary" not in without_password(address)
    for said in (
        url,
        password,
        quote(password, safe=""),
        quote(password, safe="@"),
        f"no port {after!r} at {password.rpartition('@')[2]}",
    ):
        assert "canary" not in redacted(f"cannot open {said}", url)


@given(st.text(alphabet="canryX19_-.%", min_size=3))
def test_no_access_token_is_shown(token: str) -> None:
    for scheme in ("https", "hf", "s3", "github"):
        assert without_password(f"{scheme}://{token}@host/m.onnx") == f"{scheme}://***@host/m.onnx"


@pytest.mark.parametrize("said", ["p%40ss word%2Fx", "p@ss word/x", "p%40ss%20word%2Fx", "{url}", "sig%2Fna", "sig/na"])
def test_what_others_say_of_an_address_loses_its_secrets_however_they_are_written(said: str) -> None:
    url = "https://me:p%40ss word%2Fx@h/a.onnx?sig=sig%2Fna"
    shown = redacted(f"cannot open {said.replace('{url}', url)} at h", url)
    assert shown.startswith("cannot open ")
    assert shown.endswith(" at h")
    assert not any(secret in shown for secret in ("ss word", "ss%20word", "sig/na", "sig%2Fna"))


def test_addresses_in_a_text_lose_their_secrets() -> None:
    text = "a.onnx encoder=https://me:canary@h/x.onnx zip://y.onnx::s3://h/z.zip?canary (http://h)"
    assert without_passwords(text) == "a.onnx encoder=https://me:***@h/x.onnx zip://y.onnx::s3://h/z.zip?*** (http://h)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https:/me:can@ary/w:rd#1@h/m.onnx: no such file", "https://***: no such file"),
        ("file 'https://me:canary@h/c.json' does not exist", "file 'https://me:***@h/c.json' does not exist"),
        ("http://127.0.0.1:4200: refused; see http://h/x.", "http://127.0.0.1:4200: refused; see http://h/x."),
        ("sqlite:////a/b.db: postgresql://u:***@h/db", "sqlite:////a/b.db: postgresql://u:***@h/db"),
    ],
)
def test_addresses_in_an_error_lose_their_secrets(text: str, shown: str) -> None:
    assert without_passwords(text) == shown


@pytest.mark.parametrize(
    ("root", "stored"),
    [
        (None, None),
        ("/data", "/data"),
        ("s3://bucket/data", "s3://bucket/data"),
        ("https://me:canary@h/data", None),
        ("https://canary@h/data", None),
    ],
)
def test_a_root_with_a_secret_is_not_stored(root: str | None, stored: str | None) -> None:
    assert root_to_store(root) == stored


def test_a_home_that_no_runtime_can_open_is_refused() -> None:
    with pytest.raises(InputError, match=r"its name is not Unicode; use another folder"):
        Settings.read({"AUTOOPT_HOME": os.fsdecode(b"/tmp/n_\xff")})


def test_data_start_from_a_folder_or_url(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings.cache_clear()
    monkeypatch.setenv("AUTOOPT_DATA_ROOT", "s3://bucket/data")
    try:
        assert root_of_data() == "s3://bucket/data"
        assert root_of_data(tmp_path) == str(tmp_path)
    finally:
        monkeypatch.undo()
        settings.cache_clear()
