"""Files from anywhere: a path stays itself, a URL (http, https, or any file system that fsspec knows) is fetched once.

The cache holds contents under their sha256, and for each URL its content and version (ETag, date, size). An unchanged
URL is not fetched again, and a changed one never overwrites a file that somebody is reading. If a URL is unreachable
(no network, expired signature), the last fetched copy is used, but not if the server says that the file is gone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file
from autoopt.model.filesystems import open_filesystem
from autoopt.settings import redacted, without_password
from autoopt.working_folder import replacing, working_folder

if TYPE_CHECKING:
    from urllib.request import Request

URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://", re.IGNORECASE)
TIMEOUT = 60.0
"""Seconds."""
LONGEST_NAME = 60
"""Characters of the longest file name. Longer ones lose their beginning, because the suffix is at the end."""
SIZE_KEYS = ("Content-Length", "size")
VERSION_KEYS = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime", "created", "version_id",
                "md5Hash", "checksum", *SIZE_KEYS)  # fmt: skip
GONE = (404, 410)
"""HTTP status codes of files that no longer exist."""


@dataclass(frozen=True)
class _Remote:
    """An opened URL, not yet read."""

    body: IO[bytes]
    version: str | None
    """None if the server gives none."""
    size: int | None


def is_url(text: str) -> bool:
    """True for a URL or a chain of URLs (`zip://net.onnx::s3://models/all.zip`)."""
    return bool(URL.match(text))


def shown_source(source: str) -> str:
    """A path as it is, a URL without its secrets."""
    return without_password(source) if is_url(source) else source


def has_secret(source: str) -> bool:
    """True for a URL with a password or a signature."""
    return shown_source(source) != source


def fetch(source: str, cache: Path) -> Path:
    """Return the file behind a path or URL; a URL's is in `cache` under its own name, and nobody may write to it.

    Raises:
        InputError: it cannot be fetched; the message shows the address without password and query.
    """
    if not is_url(source):
        return Path(source)
    if source.startswith("file://"):
        return Path(unquote(urlsplit(source).path))
    try:
        return _fetch(source, cache)
    except InputError:
        raise
    except Exception as error:  # every file system has its own family of errors
        copy = None if _is_gone(error) else cached(source, cache)
        if copy is not None:
            return copy
        reason = redacted(f"{type(error).__name__}: {error}", source)
        raise InputError(f"cannot be fetched ({reason})", where=without_password(source)) from None


def cached(url: str, cache: Path) -> Path | None:
    """Return the last fetched copy of a URL, whether or not it is still the newest; None if there is none."""
    with suppress(OSError, ValueError, KeyError):
        digest = str(json.loads(_note_path(url, cache).read_text())["digest"])
        path = cache / "content" / digest / url_name(url)
        if digest_file(path) == digest:
            return path
    return None


def localized(config: object, cache: Path) -> object:
    """Replace the URLs in a path, a URL or a config by the files behind them."""
    if isinstance(config, Mapping):
        return {key: localized(value, cache) for key, value in config.items()}
    if isinstance(config, str) and is_url(config):
        return str(fetch(config, cache))
    return config


def url_name(url: str) -> str:
    """Name the file behind a URL: its last part, printable and short, without secrets."""
    parts = urlsplit(innermost(url))
    # In a chain such as zip://name::..., the name is in the place of the host.
    path = unquote(parts.path) or parts.netloc.rpartition("@")[2]
    name = "".join(character for character in PurePosixPath(path).name if character.isprintable())
    return "file" if name in ("", ".", "..") else name[-LONGEST_NAME:]


def innermost(url: str) -> str:
    """Return the last address of a chain: `zip://net.onnx` of `zip://net.onnx::s3://models/all.zip`."""
    return next((part for part in url.split("::") if "://" in part), url)


def beside(url: str, location: str) -> str:
    """Return the URL of the file `location` in the folder of `url`."""
    parts = urlsplit(url)
    folder = parts.path.rpartition("/")[0]
    return parts._replace(path=f"{folder}/{location}").geturl()


def _fetch(url: str, cache: Path) -> Path:
    note_path = _note_path(url, cache)
    with _open(url) as remote, working_folder(cache) as folder:
        note: dict[str, JsonValue] = {}
        with suppress(OSError, ValueError):
            note = json.loads(note_path.read_text())
        if remote.version is not None and note.get("version") == remote.version:
            copy = cached(url, cache)
            if copy is not None:
                return copy
        digest, temporary = _download(remote, folder)
        path = cache / "content" / digest / url_name(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary, path)
    note_path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(note_path) as new:
        new.write_text(json.dumps({"version": remote.version, "digest": digest}))
    return path


def _is_gone(error: Exception) -> bool:
    status = getattr(error, "code", None) or getattr(error, "status", None)
    return status in GONE or isinstance(error, FileNotFoundError | IsADirectoryError | ImportError | ValueError)


def _note_path(url: str, cache: Path) -> Path:
    return cache / "urls" / f"{hashlib.sha256(url.encode()).hexdigest()}.json"


def _download(remote: _Remote, folder: Path) -> tuple[str, Path]:
    """Download into a file in `folder`; return its digest and path.

    The size is checked, because a connection that breaks off looks like the end of the file.
    """
    path = folder / "download"
    with path.open("wb") as file:
        shutil.copyfileobj(remote.body, file, 1 << 20)
        if remote.size is not None and file.tell() != remote.size:
            raise ConnectionError(f"only {file.tell()} of {remote.size} bytes arrived")
    return digest_file(path), path


@contextmanager
def _open(url: str) -> Iterator[_Remote]:
    if url.startswith(("http://", "https://")):
        # Imported here: it loads the cryptography of https.
        from urllib.request import urlopen

        with urlopen(_request(url), timeout=TIMEOUT) as response:
            headers = dict(response.headers)
            size = response.headers.get("Content-Length", "")
            # A compressed transfer has another length than the file.
            is_plain = "Content-Encoding" not in response.headers and size.isdecimal()
            yield _Remote(response, _version(headers), int(size) if is_plain else None)
        return
    system, path = open_filesystem(url)
    info = system.info(path)
    if info.get("type") == "directory":
        raise IsADirectoryError("a folder; name a file")
    size = info.get("size")
    with system.open(path, "rb") as file:
        yield _Remote(file, _version(info), size if isinstance(size, int) and size > 0 else None)


def _request(url: str) -> Request:
    """Make a request with user and password as a header, which no redirection carries to another host."""
    from urllib.request import Request

    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = Request(parts._replace(netloc=host, fragment="").geturl())
    if at:
        credentials = unquote(user if ":" in user else f"{user}:")
        request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}")
    return request


def _version(info: Mapping[str, object]) -> str | None:
    """Digest the entries that change with the content; None if there is only a size."""
    entries = {key: str(info[key]) for key in VERSION_KEYS if info.get(key) is not None}
    if not entries.keys() - set(SIZE_KEYS):
        return None
    return digest_json(entries)
