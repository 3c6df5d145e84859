"""`autoopt serve`: what is refused before anything is started."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--port", "0"), "Invalid value for '--port'"),
        (("--models", "0"), "Invalid value for '--models'"),
        (("--pool", "gpus"), "--pool: needs a server of its own; set PREFECT_API_URL"),
        (("--zoo", "none.yaml"), "none.yaml: "),
    ],
)
def test_wrong_options_are_one_line(
    call: Callable[..., Any], home: Path, arguments: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    code, out, err = call("serve", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert reason in err
    assert not home.exists()
