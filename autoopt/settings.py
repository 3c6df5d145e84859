"""The environment, read once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from autoopt.errors import InputError


@dataclass(frozen=True)
class Settings:
    """Locations of database, data and artifacts. Addresses may hold passwords and are left out of `repr`."""

    home: Path
    """`AUTOOPT_HOME`, default `./.autoopt`: database, artifacts, downloads."""
    db_url: str | None = field(default=None, repr=False)
    """`AUTOOPT_DB_URL`: a database in place of the SQLite file in `home`."""
    data_root: str | None = None
    """`AUTOOPT_DATA_ROOT`: the folder or URL that relative paths of data start from."""
    artifacts_url: str | None = field(default=None, repr=False)
    """`AUTOOPT_ARTIFACTS_URL`: the object store or shared folder (fsspec) for artifacts that several machines use."""
    gate: Path | None = None
    """`AUTOOPT_GATE`: the folder of the measurement gate; must be the same for all containers of a machine."""

    patience: float | None = None
    """`AUTOOPT_PATIENCE`: seconds for which work waits for a database, Prefect server or object store that is away."""

    @staticmethod
    def read(environ: Mapping[str, str]) -> Settings:
        """Read the settings from `environ`; empty variables count as not set.

        Raises:
            InputError: `AUTOOPT_PATIENCE` is no number, or the home's name is not Unicode.
        """
        gate = environ.get("AUTOOPT_GATE")
        return Settings(
            home=_home(environ.get("AUTOOPT_HOME") or ".autoopt"),
            db_url=environ.get("AUTOOPT_DB_URL") or None,
            data_root=environ.get("AUTOOPT_DATA_ROOT") or None,
            artifacts_url=environ.get("AUTOOPT_ARTIFACTS_URL") or None,
            gate=Path(gate).absolute() if gate else None,
            patience=_seconds(environ.get("AUTOOPT_PATIENCE")),
        )


def _home(name: str) -> Path:
    folder = Path(name).expanduser().absolute()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        # onnxruntime opens no file with such a path.
        remedy = "use another folder, or a locale that knows its characters"
        raise InputError("its name is not Unicode", where=f"AUTOOPT_HOME={folder}", remedy=remedy) from None
    return folder


def _seconds(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text!r} is no number of seconds", where="AUTOOPT_PATIENCE") from None


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process."""
    return Settings.read(os.environ)


def root_of_data(override: str | Path | None = None) -> str | None:
    """The absolute folder or the URL that relative paths of data start from: `override`, or the environment's.

    None: the folder of the file that names the data.
    """
    root = override or settings().data_root
    if root is None or "://" in str(root):
        return None if root is None else str(root)
    return str(Path(root).expanduser().absolute())


def root_to_store(root: str | None) -> str | None:
    """The root for records and recipes: None for a URL with a secret; whoever uses those has to name it again."""
    if root is None or "://" not in root or without_password(root) == root:
        return root
    return None


_CHAINED = re.compile(r"::(?=[a-zA-Z][a-zA-Z0-9+.-]*(?:://|::))")
"""Separates the parts of an fsspec address: `simplecache::zip://inner::https://host/file`."""
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*(?:::[a-zA-Z0-9+.-]+)*:/{1,2}(?!/)[^\s'\"]+?(?=[:;,.)]*(?:[\s'\"]|$))")
"""An address in a text, even with a single slash, as in a path. Punctuation at its end is not part of it."""
_PROTOCOL = re.compile(r"[a-zA-Z0-9+.-]+")
# Hiding shorter ones would hide letters of ordinary words in messages.
_MIN_SECRET_CHARS = 3
_SCHEMES_WITH_USERS = frozenset(
    {"postgresql", "postgres", "ssh", "sftp", "ftp", "smb", "hdfs", "abfs", "abfss", "wasbs"}
)
"""Schemes whose addresses name a user or container before the `@`; elsewhere it may be an access token."""
_SEPARATORS = re.compile(r"[@/:?#]")


def without_password(url: str) -> str:
    """`url` with its password as `***`, fit for logs and errors; `***` alone if it cannot be parsed."""
    *chain, last = _CHAINED.split(url)
    safe = [part if _PROTOCOL.fullmatch(part) else _part_without_password(part) for part in chain]
    return "::".join([*safe, _part_without_password(last)])


def without_passwords(text: str) -> str:
    """`text`, such as a command line or an error, with all addresses in it as `without_password` shows them."""

    def shown(match: re.Match[str]) -> str:
        address = match[0].replace(":/", "://", 1) if "://" not in match[0] else match[0]
        public = without_password(address)
        return match[0] if public == address else public

    return _ADDRESS.sub(shown, text)


def redacted(text: str, url: str) -> str:
    """`text`, a library's message about `url`, without the secrets of that address, in whatever encoding."""
    if not url:
        return text
    text = text.replace(url, without_password(url))
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _part_without_password(part: str) -> str:
    try:
        parts = urlsplit(part)
    except ValueError:
        return "***"
    if "://" not in part or not parts.scheme:
        return "***"
    rest = part.partition("://")[2].removeprefix(parts.netloc)
    if (parts.password is not None and "@" in rest) or (
        "@" not in parts.netloc and _has_broken_port(part, parts.netloc)
    ):
        # A password with `/`, `?` or `#` in it ends the host early; the rest of the address may be its second half.
        return f"{parts.scheme}://***"
    # Database drivers take passwords in the query, too, and signed URLs have their signature there.
    query = "?***" if parts.query else ""
    return f"{parts.scheme}://{_host_without_password(parts)}{parts.path}{query}"


def _host_without_password(parts: SplitResult) -> str:
    """Host and port of an address, with its user unless that is an access token."""
    host = parts.netloc.rpartition("@")[2]
    if parts.password is not None:
        return f"{parts.username or ''}:***@{host}"
    if parts.username and parts.scheme.partition("+")[0] not in _SCHEMES_WITH_USERS:
        return f"***@{host}"
    return parts.netloc


def _has_broken_port(part: str, netloc: str) -> bool:
    """True if the text after the host's colon cannot be a port, or an `@` follows further on."""
    _, colon, port = netloc.rpartition("]")[2].rpartition(":")
    return bool(colon) and (not port.isdecimal() or "@" in part)


def _secrets(url: str) -> set[str]:
    """Passwords, tokens and query values of an address, as written, decoded and encoded."""
    secrets: set[str] = set()
    for part in _CHAINED.split(url):
        address = part.partition("://")[2]
        user, at, _ = address.rpartition("@")
        if at:
            name, colon, password = user.partition(":")
            secret = password if colon else name
            secrets.add(secret)
            secrets.update(_SEPARATORS.split(secret))  # libraries take a part of it for a host or a port
        query = address.partition("?")[2]
        secrets.add(query)
        for pair in query.split("&"):
            secrets.add(pair.partition("=")[2])
    for secret in list(secrets):
        secrets |= {unquote(secret), quote(unquote(secret), safe=""), quote(secret, safe="")}
    secrets |= {secret.replace("%40", "@") for secret in secrets}  # some libraries decode only this
    return {secret for secret in secrets if len(secret) >= _MIN_SECRET_CHARS}
