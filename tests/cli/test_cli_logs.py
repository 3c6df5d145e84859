"""Log records on standard error: `--verbose` and `--debug`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.cli.logs import show_logs


def test_verbose_shows_information_and_no_details(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(debug=False)
    logging.getLogger("autoopt.engine").info("a step")
    logging.getLogger("autoopt.engine").debug("a detail")
    err = capsys.readouterr().err
    assert re.fullmatch(r"\S+ \S+ INFO autoopt\.engine\[\d+\]: a step\n", err)


def test_debug_shows_details_and_repeated_calls_show_each_record_once(capsys: pytest.CaptureFixture[str]) -> None:
    show_logs(debug=True)
    logging.getLogger("autoopt.engine").debug("a detail")
    assert "DEBUG autoopt.engine" in capsys.readouterr().err
    show_logs(debug=False)
    logging.getLogger("autoopt").info("once")
    assert capsys.readouterr().err.count("once") == 1


@pytest.mark.parametrize(("option", "lines"), [((), 0), (("--debug",), 1)])
def test_commands_are_silent_unless_asked(
    call: Callable[..., Any], tmp_path: Path, option: tuple[str, ...], lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOOPT_DEBUG", "")
    model = str(write(mlp(), tmp_path / "in"))
    code, _, err = call(*option, "compare", model, model)
    assert code == 0
    assert len(re.findall(r"autoopt\.workers\.pool\[\d+\]: call autoopt\.measure\.layerwise", err)) == lines
