"""Files from anywhere: a path stays itself, a URL (http, https, or any file system that fsspec knows) is fetched once.

The cache holds contents under their sha256, and for each URL its content and version (ETag, date, size). An unchanged
URL is not fetched again, and a changed one never overwrites a file that somebody is reading. If a URL is unreachable
(no network, expired signature), the last fetched copy is used, but not if the server says that the file is gone.
`RemoteFolder` is a folder behind a URL that is written, too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

from autoopt.errors import InputError, SystemFailure
from autoopt.json_codec import JsonValue
from autoopt.model.candidate import digest_json
from autoopt.model.files import digest_file
from autoopt.settings import redacted, settings, without_password
from autoopt.working_folder import replacing, working_folder

if TYPE_CHECKING:
    from urllib.request import Request

    from fsspec import AbstractFileSystem

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
        temporary = folder / "download"
        with temporary.open("wb") as file:
            shutil.copyfileobj(remote.body, file, 1 << 20)
            # A connection that breaks off looks like the end of the file.
            if remote.size is not None and file.tell() != remote.size:
                raise ConnectionError(f"only {file.tell()} of {remote.size} bytes arrived")
        digest = digest_file(temporary)
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


T = TypeVar("T")
S3: Final = ("s3", "s3a")
REFUSED: Final = ("dask", "reference")
"""Protocols that unpickle what a server sends, or render templates from a file."""
# botocore's own are 60 s each.
CONFIG: Final = {"connect_timeout": 5, "read_timeout": 30}
"""Time limits of a request, in seconds."""
PAUSE: Final = 2.0
"""Seconds between attempts at a file system that does not answer."""
RETRIES: Final = {"total_max_attempts": 2, "mode": "standard"}


def open_filesystem(url: str) -> tuple[AbstractFileSystem, str]:
    """Open the file system that `url`, perhaps a chain of URLs, leads to; return it and the path in it.

    An S3 server gets two attempts: an unreachable one is waited for 5 s each time, a silent one 30 s (storing a large
    file may take it some time). The libraries' defaults add up to many minutes. AWS_MAX_ATTEMPTS and `config_kwargs` of
    `s3` in the user's fsspec configuration take precedence.

    Raises:
        ImportError, ValueError: there is no such file system, it may run code that is not ours, or a package that it
            needs is not installed.
    """
    import fsspec

    protocols = {part.partition("://")[0] for part in url.split("::")}
    for protocol in REFUSED:
        if protocol in protocols:
            raise ValueError(f"{protocol}:// may run code from elsewhere")
    config: dict[str, object] = dict(CONFIG)
    if not os.environ.get("AWS_MAX_ATTEMPTS"):
        config["retries"] = RETRIES
    for protocol in S3:
        config |= fsspec.config.conf.get(protocol, {}).get("config_kwargs", {})
    options = {protocol: {"config_kwargs": config} for protocol in S3 if protocol in protocols}
    for protocol, arguments in options.items():
        # fsspec reuses this object when it opens the chain. s3fs would repeat all that its client has tried.
        fsspec.filesystem(protocol, **arguments).retries = 1
    system, path = fsspec.core.url_to_fs(url, **options)
    return system, str(path)


class RemoteFolder:
    """A folder or object store that several machines reach."""

    def __init__(self, url: str, refusal: str) -> None:
        """Connect to the file system; `refusal` is what the error says that there cannot be.

        Raises:
            InputError: There is no such file system, or its library is not installed.
        """
        self._url = url
        self.safe_url = without_password(url)
        try:
            self.system, root = open_filesystem(url)
        except (ImportError, ValueError) as error:
            raise InputError(f"{refusal} ({redacted(str(error), url)})", where=self.safe_url) from None
        self.root = PurePosixPath(root)

    def put(self, file: Path, target: PurePosixPath) -> None:
        """Copy a file of this machine there, with the folders above it."""
        self.system.makedirs(str(target.parent), exist_ok=True)
        self.system.put_file(str(file), str(target))

    def patiently(self, failure: str, work: Callable[[], T]) -> T:
        """Do work; while the file system does not answer, repeat it for as long as `AUTOOPT_PATIENCE` says.

        Raises:
            SystemFailure: as of `failures`.
        """
        until = time.monotonic() + (settings().patience or 0.0)
        while True:
            with self.failures(failure):
                try:
                    return work()
                except (FileNotFoundError, PermissionError):  # what another attempt does not change
                    raise
                except Exception:
                    if time.monotonic() >= until:
                        raise
            time.sleep(PAUSE)

    @contextmanager
    def failures(self, failure: str) -> Iterator[None]:
        """Turn the errors of any file system into `SystemFailure`, which begins with `failure`."""
        try:
            yield
        except Exception as error:  # each file system has its own family of errors
            reason = redacted(f"{type(error).__name__}: {error}", self._url)
            raise SystemFailure(f"{failure} ({reason})", where=self.safe_url) from None
