"""Where the flow runs of a deployment are executed: on this host with this store, or by the workers of a work pool."""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass

from autoopt.settings import settings, without_password


@dataclass(frozen=True)
class Place:
    """Where the flow runs of deployments are executed: a part of their names, and their tags."""

    name: str
    tags: tuple[str, ...]
    pool: str | None = None

    @staticmethod
    def here() -> Place:
        """This host, with the store that this process uses."""
        host, known = socket.gethostname(), settings()
        address = f"{known.home.resolve()}\n{without_password(known.db_url or '')}"
        store = hashlib.sha256(address.encode()).hexdigest()[:6]
        return Place(f"{host}-{store}", (f"host:{host}", f"store:{store}"))

    @staticmethod
    def in_pool(pool: str) -> Place:
        """The machines whose workers take flow runs from a work pool."""
        return Place(pool, (f"pool:{pool}",), pool)
