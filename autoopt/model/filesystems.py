"""The file systems behind URLs, opened with fsspec."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, TypeVar

from autoopt.errors import InputError, SystemFailure
from autoopt.settings import redacted, settings, without_password

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

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
