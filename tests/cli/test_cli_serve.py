"""`autoopt serve`: what is refused before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--queue", "a b"), "'a b' cannot be the name of a work queue"),
        (("--queue", "cuda", "--queue", "default"), "'default' cannot be the name of a work queue"),
        (("--port", "0"), "Invalid value for '--port'"),
        (("--limit", "0"), "Invalid value for '--limit'"),
    ],
)
def test_wrong_options_are_one_line(
    call: Callable[..., Any], home: Path, arguments: tuple[str, ...], reason: str
) -> None:
    code, out, err = call("serve", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert not home.exists()
