"""The table of other products' passes is well-formed."""

from __future__ import annotations

import json

import pytest

from autoopt.registry.compat_table import OLIVE, POPRT

LINES = [line for table in (POPRT, OLIVE) for line in table.strip().splitlines()]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split(" | ")[0])
def test_a_line_has_a_name_passes_parameters_and_a_remark(line: str) -> None:
    name, passes, params, *remark = f"{line} ".split(" | ")
    assert name == name.strip()
    assert name
    assert len(remark) <= 1
    content = json.loads(params.strip().removeprefix("e.g.") or "{}")
    assert isinstance(content, dict)
    if passes.strip() == "-":
        assert not content
        assert remark, "a line without a pass gives the reason"
        assert remark[0].strip()
    assert not content or " or " not in passes, "parameters belong to one pass"


def test_names_are_unique() -> None:
    names = [line.split(" | ")[0] for line in LINES]
    assert len(set(names)) == len(names)
