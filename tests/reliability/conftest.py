"""Servers that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Prefect, environment
from prefect_server import free_port, prepared, running_server


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prefect]:
    """A Prefect server of these tests' own."""
    folder = tmp_path_factory.mktemp("server")
    env = environment(folder)
    prepared(Path(env["PREFECT_HOME"]))
    with running_server(env, free_port(), folder / "said.txt") as url:
        yield Prefect(url, folder)
