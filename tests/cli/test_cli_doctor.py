"""`autoopt doctor`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from autoopt.engine.tools import doctor
from autoopt.engine.tools.doctor import Finding


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([Finding("disk", "ok", "10 GB free")], 0),
        ([Finding("disk", "warning", "1 GB free", "free some space")], 0),
        ([Finding("disk", "ok", "10 GB free"), Finding("runtime", "problem", "no worker", "reinstall it")], 3),
    ],
)
def test_only_a_problem_has_exit_code_3(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, findings: list[Finding], code: int
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda settings, runtimes: findings)
    result = call("doctor")
    assert (result.code, result.err) == (code, "")
    last = findings[-1]
    expected = [last.status, last.check, last.message, last.remedy]
    assert all(word in result.out.splitlines()[-1] for word in expected)
    assert json.loads(call("doctor", "--json").out) == [finding.to_json() for finding in findings]
