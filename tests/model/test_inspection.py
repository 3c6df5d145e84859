"""The facts about a model as a record and as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from autoopt.model.inspection import FLOAT_FORMS, FUSED_LAYERS, QUANTIZED_OPS, Inspection, ValueSpec, with_plain_forms

DIMS = st.none() | st.integers(0, 9) | st.text(max_size=5)
SPECS = st.builds(ValueSpec, st.text(max_size=5), st.just("float32"), st.none() | st.lists(DIMS, max_size=4).map(tuple))


def inspection(*inputs: ValueSpec, **facts: object) -> Inspection:
    return Inspection(
        inputs=inputs,
        outputs=(ValueSpec("y", "sequence", None),),
        opsets={"": 17, "com.microsoft": 1},
        ir_version=8,
        op_counts={"Conv": 3, "com.microsoft::Gelu": 1},
        parameters=10,
        bytes=40,
        **facts,  # type: ignore[arg-type]
    )


@given(st.lists(SPECS, max_size=4))
def test_an_inspection_survives_json(inputs: list[ValueSpec]) -> None:
    facts = inspection(*inputs, dynamic_dims=("batch", "x[1]"), weight_dtypes={"int8": 4}, functions=2)
    assert Inspection.from_json(json.loads(json.dumps(facts.to_json()))) == facts


def test_facts_that_an_older_document_lacks_have_defaults() -> None:
    document = inspection().to_json()
    for name in ("weight_dtypes", "functions", "external_data", "dynamic_dims"):
        del document[name]
    assert Inspection.from_json(document) == inspection()


def test_the_operators_are_those_that_occur() -> None:
    assert inspection().ops == {"Conv", "com.microsoft::Gelu"}


def test_integer_and_fused_operators_count_as_their_plain_forms_too() -> None:
    counts = {"Conv": 1, "QLinearConv": 2, "com.microsoft::FusedConv": 3, "Relu": 4}
    assert with_plain_forms(counts) == {**counts, "Conv": 6}
    assert counts["Conv"] == 1


def test_no_plain_form_is_quantized_or_fused() -> None:
    forms = {*FLOAT_FORMS.values(), *FUSED_LAYERS.values()}
    assert not forms & (QUANTIZED_OPS | FUSED_LAYERS.keys())
