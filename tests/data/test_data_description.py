"""Descriptions of data sets cross processes as JSON."""

from __future__ import annotations

from autoopt.data.description import Column, DataDescription
from autoopt.json_codec import from_json, to_json


def test_a_description_is_read_as_it_was_written() -> None:
    columns = {"x": Column("float32", (6, 4), finite=True), "uneven": Column("int64", (1, 2))}
    description = DataDescription(6, columns, labels=True, label_kind="class", label_text="cat")
    assert from_json(DataDescription, to_json(description)) == description
