"""Errors of the Python API name its arguments."""

from __future__ import annotations

from inspect import signature

import pytest

import autoopt
from autoopt.api import RunOptions
from autoopt.engine.planning.python_words import PLAN, PROPOSAL_FIELDS, RUN, in_python, python_words
from autoopt.errors import ConfigError, InputError
from autoopt.spec.proposal_options import ProposalOptions

IMAGES = "data={'path': ..., 'load_dataset': {'type': 'images', 'params': {"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name one: --label species", "name one: label='species'"),
        ("name the label with --label a, or choose columns", "name the label with label='a', or choose columns"),
        ("choose it with --inputs NAME, and the labels", "choose it with inputs=NAME, and the labels"),
        ("choose the columns with --inputs A,B,... or a pre_process", "choose the columns with inputs=[A, B, ...] or"),
        ("--max-drop", "max_drop"),
        ("allow more --minutes: for slow models", "allow more minutes: for slow models"),
        ("add --layout NHWC", f"add {IMAGES}'layout': 'NHWC'}}}}}}"),
        ("add --grayscale", f"add {IMAGES}'mode': 'L'}}}}}}"),
        ("add --image-size 3x4", f"add {IMAGES}'size': [3, 4]}}}}}}"),
        ("--keep-signature leaves it out", "proposal_options=ProposalOptions(keep_signature=True) leaves it out"),
        ("write it with: autoopt init --data x.npz", "write it with: autoopt init --data x.npz"),
        ("pip install --constraint constraints.txt", "pip install --constraint constraints.txt"),
    ],
)
def test_options_become_arguments(text: str, expected: str) -> None:
    assert in_python(text, RUN).startswith(expected)


def test_a_plan_takes_columns_as_fields_of_its_data() -> None:
    assert in_python("name one: --label a", PLAN) == "name one: data={'path': ..., 'label_col': 'a'}"


def test_the_arguments_exist() -> None:
    assert {*RunOptions.__annotations__, "model", "data", "out"} >= RUN
    assert set(signature(autoopt.plan).parameters) >= PLAN
    assert set(ProposalOptions.__dataclass_fields__) >= PROPOSAL_FIELDS


def test_an_error_keeps_its_class_and_place() -> None:
    with pytest.raises(ConfigError) as caught, python_words(RUN):
        raise ConfigError("needs --data", file="dag.yaml", line=3, field="data", remedy="add --label NAME")
    assert str(caught.value) == "dag.yaml:3: data: needs data; add label=NAME"
    assert caught.value.line == 3
    with pytest.raises(InputError, match=r"^metric: no metric of quality$"), python_words(RUN):
        raise InputError("no metric of quality", where="--metric")
