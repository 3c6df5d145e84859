"""The sections of configurations of different versions."""

from __future__ import annotations

from autoopt.olive.config import Remarks
from autoopt.spec.source import Source


def test_remarks_come_once_and_in_the_order_of_the_file() -> None:
    remarks = Remarks(Source("c.json", lines={("b",): 9, ("a",): 2}))
    for _ in range(2):
        remarks.add(("b", "x"), "second", "do that")
        remarks.add(("a",), "first")
    assert remarks.texts() == ("c.json:2: a: first", "c.json:9: b.x: second; do that")
