from __future__ import annotations

import numpy as np
import pytest

from autoopt.data.dataset import DataSet
from autoopt.data.next_tokens import next_tokens

TEXT = np.array([[5, 6, 7, 8], [1, 2, 3, 4]])
AFTER = [[6, 7, 8, -100], [2, 3, 4, -100]]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (TEXT, AFTER),
        ([[5, 6, -100, -100], [1, 2, 3, 4]], [[6, -100, -100, -100], [2, 3, 4, -100]]),
        (AFTER, AFTER),
        ([[6, 7, 8, 9], [2, 3, 4, 5]], [[6, 7, 8, 9], [2, 3, 4, 5]]),
        ([[0, 1, 0, 1], [1, 1, 0, 0]], None),
        ([0, 1], None),
    ],
    ids=["repeated", "repeated and padded", "next", "next with the last", "classes of tokens", "classes of texts"],
)
def test_labels_of_a_language_model_are_the_next_tokens(labels: object, expected: object) -> None:
    after = next_tokens(DataSet({"input_ids": TEXT}, np.array(labels)))
    assert (None if after is None else after.tolist()) == expected


def test_labels_of_other_inputs_are_never_next_tokens() -> None:
    assert next_tokens(DataSet({"x": TEXT}, TEXT)) is None
    assert next_tokens(DataSet({"input_ids": TEXT})) is None
