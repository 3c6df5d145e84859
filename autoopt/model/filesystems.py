"""The file systems behind URLs, by fsspec."""

from __future__ import annotations

import os
from typing import Any, Final

_S3: Final = ("s3", "s3a")
_CONFIG: Final = {"connect_timeout": 5, "read_timeout": 30}
_RETRIES: Final = {"total_max_attempts": 2, "mode": "standard"}


def open_filesystem(url: str) -> tuple[Any, str]:
    """The file system that `url`, perhaps a chain of URLs, leads to, and the path in it.

    An S3 server is asked twice: one that cannot be reached is waited for 5 s each time, one that takes a request and is
    silent 30 s (to store a large file may take it some time); the libraries' defaults come to many minutes.
    AWS_MAX_ATTEMPTS and what the user's configuration of fsspec has as `config_kwargs` of `s3` go before.

    Raises:
        ImportError, ValueError: no such file system, or what it needs is not installed.
    """
    import fsspec

    config: dict[str, Any] = dict(_CONFIG) if os.environ.get("AWS_MAX_ATTEMPTS") else {**_CONFIG, "retries": _RETRIES}
    for protocol in _S3:
        config |= fsspec.config.conf.get(protocol, {}).get("config_kwargs", {})
    protocols = {part.partition("://")[0] for part in url.split("::")}
    options = {protocol: {"config_kwargs": config} for protocol in _S3 if protocol in protocols}
    for protocol, given in options.items():  # opening the chain finds these same objects
        fsspec.filesystem(protocol, **given).retries = 1  # s3fs would try again all that its client has tried
    system, path = fsspec.core.url_to_fs(url, **options)
    return system, str(path)
