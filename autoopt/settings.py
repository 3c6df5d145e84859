"""The environment, read once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit


@dataclass(frozen=True)
class Settings:
    """Where autoopt keeps its things. Addresses may hold passwords and are left out of `repr`."""

    home: Path
    """`AUTOOPT_HOME`, default `./.autoopt`: database, artifacts, downloads."""
    db_url: str | None = field(default=None, repr=False)
    """`AUTOOPT_DB_URL`: another database than the SQLite file in `home`."""
    data_root: str | None = None
    """`AUTOOPT_DATA_ROOT`: a folder or URL that relative paths of data start from."""
    artifacts_url: str | None = field(default=None, repr=False)
    """`AUTOOPT_ARTIFACTS_URL`: an object store or shared folder (fsspec) that machines share artifacts through."""
    gate: Path | None = None
    """`AUTOOPT_GATE`: the folder of the measurement gate, the same for all containers of a machine."""
    test_postgres_url: str | None = field(default=None, repr=False)
    """`AUTOOPT_TEST_POSTGRES_URL`: the PostgreSQL server of the service tests."""
    test_zoo: Path | None = None
    """`AUTOOPT_TEST_ZOO`: a folder of real models for the zoo tests."""

    @staticmethod
    def read(environ: Mapping[str, str]) -> Settings:
        """The settings that `environ` gives; empty variables count as not set."""
        zoo, gate = environ.get("AUTOOPT_TEST_ZOO"), environ.get("AUTOOPT_GATE")
        return Settings(
            home=Path(environ.get("AUTOOPT_HOME") or ".autoopt").expanduser().absolute(),
            db_url=environ.get("AUTOOPT_DB_URL") or None,
            data_root=environ.get("AUTOOPT_DATA_ROOT") or None,
            artifacts_url=environ.get("AUTOOPT_ARTIFACTS_URL") or None,
            gate=Path(gate).absolute() if gate else None,
            test_postgres_url=environ.get("AUTOOPT_TEST_POSTGRES_URL") or None,
            test_zoo=Path(zoo).absolute() if zoo else None,
        )


def root_of_data(given: str | Path | None = None) -> str | None:
    """The folder (absolute) or URL that relative paths of data start from: `given`, else that of the environment; None
    for the folder of the file that names them."""
    root = given or settings().data_root
    if root is None or "://" in str(root):
        return None if root is None else str(root)
    return str(Path(root).expanduser().absolute())


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process."""
    return Settings.read(os.environ)


_CHAINED = re.compile(r"::(?=[a-zA-Z][a-zA-Z0-9+.-]*(?:://|::))")
"""Between the parts of an fsspec address: `simplecache::zip://inner::https://host/file`."""
_PLAIN = re.compile(r"[a-zA-Z0-9+.-]+")
_WEB = ("http", "https")


def without_password(url: str) -> str:
    """`url` with its password as `***`, fit for logs and errors; `***` alone where it cannot be read."""
    *chain, last = _CHAINED.split(url)
    protocols = [part if _PLAIN.fullmatch(part) else _without_password(part) for part in chain]
    return "::".join([*protocols, _without_password(last)])


def _without_password(part: str) -> str:
    try:
        parts = urlsplit(part)
        password, user, port = parts.password, parts.username, parts.netloc.rpartition("]")[2].rpartition(":")
    except ValueError:
        return "***"
    if not parts.scheme or "://" not in part:
        return "***"
    netloc = parts.netloc
    if password is not None:
        netloc = f"{user or ''}:***@{netloc.rpartition('@')[2]}"
    elif user and parts.scheme in _WEB:
        netloc = f"***@{netloc.rpartition('@')[2]}"  # a token
    elif "@" not in netloc and port[1] and (not port[2].isdecimal() or "@" in part):
        return f"{parts.scheme}://***"  # a password with `/`, `?` or `#` in it, which ends the host early
    query = "?***" if parts.query else ""  # drivers take passwords there too
    return f"{parts.scheme}://{netloc}{parts.path}{query}"


def redacted(text: str, url: str) -> str:
    """`text`, which some library says of `url`, without any secret of that address, however it is written."""
    text = text.replace(url, without_password(url))
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(url: str) -> set[str]:
    found: set[str] = set()
    for part in _CHAINED.split(url):
        rest = part.partition("://")[2]
        user, at, _ = rest.rpartition("@")
        if at:
            name, colon, password = user.partition(":")
            found.add(password if colon else name)
        query = rest.partition("?")[2]
        found |= {query, *(pair.partition("=")[2] for pair in query.split("&"))}
    found |= {unquote(secret) for secret in found} | {quote(unquote(secret), safe="") for secret in found}
    return {secret for secret in found if len(secret) > 2}
