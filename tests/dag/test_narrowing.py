"""The narrower contract that data allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoopt.dag.proposal.narrowing import Narrowing, narrowing_of
from autoopt.data.description import Column, DataDescription
from autoopt.model.inspection import Inspection, ValueSpec

ITEMS = 20


def model(**inputs: Any) -> Inspection:
    specs = tuple(ValueSpec(name, "float32", tuple(shape)) for name, shape in inputs.items())
    return Inspection(specs, (), {"": 17}, 8, {"Relu": 1}, 1, 4)


def data(**columns: Any) -> DataDescription:
    """Stacked items of these shapes, or columns."""
    made = {}
    for name, column in columns.items():
        made[name] = column if isinstance(column, Column) else Column("float32", (ITEMS, *column))
    return DataDescription(ITEMS, made)


COMPLETE = Column("float32", (2, 5, 3), None, stacked=False, open_axes=(0,))
RATE = Column("int64", (ITEMS,), constant=16000)
MASK = Column("int64", (ITEMS, 3), constant=[1, 1, 1])


@pytest.mark.parametrize(
    ("inspection", "description", "expected"),
    [
        (model(x=["N", 4]), data(x=[4]), Narrowing()),
        (model(x=["N", "T"]), data(x=[4]), Narrowing(shapes={"x": (None, 4)})),
        (model(x=["N", 4], sr=[]), data(x=[4], sr=RATE), Narrowing({"sr": 16000})),
        (model(x=["N", 4], sr=[1]), data(x=[4], sr=RATE), Narrowing({"sr": [16000]})),
        (model(x=["N", "T"], m=["N", "T"]), data(x=[3], m=MASK), Narrowing({"m": [[1, 1, 1]]}, {"x": (1, 3)})),
        (model(x=[2, 3], m=[2, 3]), data(x=[3], m=MASK), Narrowing()),
        (model(sr=[]), data(sr=RATE), Narrowing()),
        (model(x=[None, None, 3]), data(x=COMPLETE), Narrowing({}, {"x": (None, 5, 3)})),
        (model(x=["N", 4], h=[2, "N", 3]), data(x=[4], h=[2, 1, 3]), Narrowing({}, {"x": (1, 4), "h": (2, 1, 3)})),
        (model(x=["N", "T"]), DataDescription(), Narrowing()),
        (model(x=["N", "T"]), replace(data(x=[4]), made_up=True), Narrowing()),
    ],
    ids=[
        "an open batch stays open",
        "a size that never changes is fixed",
        "a scalar becomes a constant",
        "a constant of one item has the rank of the input",
        "a constant along the batch fixes it at one item",
        "a model of fixed batch keeps its inputs",
        "one input is left",
        "complete arrays fix what they have in common",
        "an input without a batch in the data fixes it at one item",
        "inputs without data stay as they are",
        "made-up items say nothing",
    ],
)  # fmt: skip
def test_the_contract_is_what_the_data_have_in_common(
    inspection: Inspection, description: DataDescription, expected: Narrowing
) -> None:
    assert narrowing_of(inspection, [description]) == expected


def test_every_data_set_counts() -> None:
    inspection = model(x=["N", "T"], sr=[])
    other = data(x=[5], sr=replace(RATE, constant=8000))
    assert narrowing_of(inspection, [data(x=[4], sr=RATE), other]) == Narrowing()
    assert not narrowing_of(inspection, [])


def test_recurrent_state_goes_one_item_at_a_time_and_is_no_constant() -> None:
    zeros = Column("float32", (ITEMS, 2, 1, 8), constant=[1.0])
    found = narrowing_of(model(x=["N", 4], h=[2, "M", 8]), [data(x=[4], h=zeros)], fed_back={"h"})
    assert found == Narrowing({}, {"x": (1, 4), "h": (2, 1, 8)})


def test_a_batch_size_that_the_user_names_forbids_constants_of_one_item() -> None:
    inspection = model(x=["N", 4], m=["N", 3])
    assert not narrowing_of(inspection, [data(x=[4], m=MASK)], batch_size=8)
    assert narrowing_of(inspection, [data(x=[4], m=MASK)], batch_size=1)


def test_the_contract_in_words_is_short() -> None:
    values = {"sr": 16000, "m": [[1] * 50] * 2, "p": list(range(100))}
    text = Narrowing(values, {"x": (None, 4)}).text
    assert text.startswith("sr is always 16000, m is always 1 (all 100 values), p is always [0, 1, 2, ")
    assert text.endswith("..., x has shape [?, 4]")
    assert len(text) < 140


def test_of_many_inputs_the_first_are_named() -> None:
    shapes = {f"x{number}": (number,) for number in range(9)}
    text = Narrowing({}, shapes).text
    assert text.endswith("x4 has shape [4], and so on for 4 more inputs")
    assert "more" not in Narrowing({}, dict(list(shapes.items())[:6])).text


def test_nothing_is_fixed_for_a_decoder_with_a_cache() -> None:
    cached = {"input_ids": ["N", "T"], "attention_mask": ["N", "P + T"], "past_key_values.0.key": ["N", 2, "P", 4]}
    ones = Column("int64", (ITEMS, 3), constant=[1, 1, 1])
    description = data(input_ids=[3], attention_mask=ones)
    assert narrowing_of(model(**cached), [description]) == Narrowing()
    del cached["past_key_values.0.key"]
    assert narrowing_of(model(**cached), [description])
