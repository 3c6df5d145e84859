"""Files from anywhere: a path stays itself, a URL (http, https, or any file system that fsspec knows) is fetched once.

The cache holds contents under their sha256, and per URL which content it had at which version (ETag, date, size): an
unchanged URL is not fetched again, and a changed one never overwrites what somebody is reading. A URL that was fetched
before and cannot be reached now (no network, a signature that is over) gives what it gave then; one that is gone does
not.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file
from autoopt.model.filesystems import open_filesystem
from autoopt.settings import redacted, without_password

_URL = re.compile(r"[a-z][a-z0-9+.-]+(::[a-z][a-z0-9+.-]+)*://", re.IGNORECASE)
_TIMEOUT = 60.0
_LONGEST_NAME = 60
_VERSION_KEYS = ("ETag", "etag", "Last-Modified", "LastModified", "last_modified", "mtime", "created", "version_id",
                 "md5Hash", "checksum", "Content-Length", "size")  # fmt: skip


def is_url(text: str) -> bool:
    return bool(_URL.match(text))


def fetch(source: str, cache: Path) -> Path:
    """The file behind a path or URL; what a URL gives lies in `cache`, under its own name, not to be written.

    Raises:
        InputError: it cannot be fetched; the address is shown without password and query.
    """
    if not is_url(source):
        return Path(source)
    if source.startswith("file://"):
        return Path(unquote(urlsplit(source).path))
    try:
        return _fetch(source, cache)
    except InputError:
        raise
    except Exception as error:  # any file system's own family of errors
        before = None if _is_gone(error) else kept(source, cache)
        if before is not None:
            return before
        reason = redacted(f"{type(error).__name__}: {error}", source)
        raise InputError(f"cannot be fetched ({reason})", where=without_password(source)) from None


def kept(url: str, cache: Path) -> Path | None:
    """What `cache` holds of a URL, whether or not it is still the newest; None for nothing."""
    with suppress(OSError, ValueError, KeyError):
        digest = str(json.loads(_note(url, cache).read_text())["digest"])
        path = cache / "content" / digest / url_name(url)
        return path if digest_file(path) == digest else None
    return None


def local(config: Any, cache: Path) -> Any:
    """A path, a URL or a config with URLs anywhere in it, with the files they give in place of the URLs."""
    if isinstance(config, Mapping):
        return {key: local(value, cache) for key, value in config.items()}
    if isinstance(config, str) and is_url(config):
        return str(fetch(config, cache))
    return config


def url_name(url: str) -> str:
    """The name of the file behind a URL: its last part, printable and short; no secret is in it."""
    parts = urlsplit(innermost(url))
    path = unquote(parts.path) or parts.netloc.rpartition("@")[2]  # zip://name::...
    name = "".join(c for c in PurePosixPath(path).name if c.isprintable())
    return name[-_LONGEST_NAME:] if name not in ("", ".", "..") else "file"


def innermost(url: str) -> str:
    """What a chain of URLs leads to: `zip://net.onnx` of `zip://net.onnx::s3://models/all.zip`."""
    return next((part for part in url.split("::") if "://" in part), url)


def beside(url: str, location: str) -> str:
    """The URL of the file `location` in the folder of `url`."""
    parts = urlsplit(url)
    folder = parts.path.rpartition("/")[0]
    return parts._replace(path=f"{folder}/{location}").geturl()


def _fetch(url: str, cache: Path) -> Path:
    note = _note(url, cache)
    name = url_name(url)
    with _opened(url) as (version, size, body):
        known: dict[str, Any] = {}
        path: Path | None
        with suppress(OSError, ValueError):
            known = json.loads(note.read_text())
        if version is not None and known.get("version") == version:
            path = kept(url, cache)
            if path is not None:
                return path
        digest, temporary = _download(body, size, cache)
    path = cache / "content" / digest / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(temporary, path)
    note.parent.mkdir(parents=True, exist_ok=True)
    _replace(note, json.dumps({"version": version, "digest": digest}))
    return path


def _is_gone(error: Exception) -> bool:
    status = getattr(error, "code", None) or getattr(error, "status", None)
    return isinstance(error, FileNotFoundError | IsADirectoryError | ImportError | ValueError) or status in (404, 410)


def _note(url: str, cache: Path) -> Path:
    return cache / "urls" / f"{hashlib.sha256(url.encode()).hexdigest()}.json"


def _download(body: IO[bytes], size: int | None, cache: Path) -> tuple[str, Path]:
    """Keep `body`, which has to be `size` bytes: a connection that ends early looks like the end of the file."""
    cache.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=cache)
    with os.fdopen(fd, "wb") as file:
        try:
            shutil.copyfileobj(body, file, 1 << 20)
            if size is not None and file.tell() != size:
                raise ConnectionError(f"only {file.tell()} of {size} bytes came")
        except BaseException:
            os.unlink(temporary)
            raise
    with open(temporary, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), Path(temporary)


def _replace(path: Path, text: str) -> None:
    fd, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.replace(temporary, path)


@contextmanager
def _opened(url: str) -> Iterator[tuple[str | None, int | None, IO[bytes]]]:
    """The version of what the URL gives now and its size, None where there is no telling, and its bytes, not yet
    read."""
    if url.startswith(("http://", "https://")):
        with urllib.request.urlopen(_request(url), timeout=_TIMEOUT) as answer:
            telling = answer.headers.get("ETag") or answer.headers.get("Last-Modified")
            size = answer.headers.get("Content-Length", "")
            plain = "Content-Encoding" not in answer.headers and size.isdecimal()
            yield _version(dict(answer.headers)) if telling else None, int(size) if plain else None, answer
        return
    system, path = open_filesystem(url)
    info = system.info(path)
    if info.get("type") == "directory":
        raise IsADirectoryError("a folder; name a file")
    size = info.get("size")
    with system.open(path, "rb") as file:
        yield _version(info), size if isinstance(size, int) and size > 0 else None, file


def _request(url: str) -> urllib.request.Request:
    """User and password of the address as a header, which no redirection carries to another host."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host, fragment="").geturl())
    if at:
        given = base64.b64encode(unquote(user if ":" in user else f"{user}:").encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {given}")
    return request


def _version(info: dict[str, Any]) -> str | None:
    known = {key: str(info[key]) for key in _VERSION_KEYS if info.get(key) is not None}
    return digest_json(known) if known.keys() - {"size", "Content-Length"} else None
