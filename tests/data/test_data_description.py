"""Descriptions of data sets cross processes as JSON."""

from __future__ import annotations

from autoopt.data.description import Column, DataDescription
from autoopt.json_codec import from_json, to_json


def test_a_description_is_read_as_it_was_written() -> None:
    columns = {"x": Column("float32", (6, 4), finite=True), "uneven": Column("int64", (1, 2))}
    description = DataDescription(6, columns, labels=True, label_kind="class", label_text="cat")
    assert from_json(DataDescription, to_json(description)) == description


def test_the_state_is_written_as_fields_of_a_data_configuration() -> None:
    assert DataDescription(6).state_fields == {}
    zeros = DataDescription(6, state={"out": "in"}, reset_every=3)
    assert zeros.state_fields == {"state": {"out": "in"}, "reset_every": 3}
    assert DataDescription(6, state={"out": "in"}, starts=(0, 4)).state_fields == {
        "state": {"out": "in"},
        "starts": [0, 4],
    }
