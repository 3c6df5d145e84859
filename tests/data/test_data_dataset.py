"""Data sets in a worker."""

from __future__ import annotations

import numpy as np
import pytest

from autoopt.errors import InputError


def test_arrays_of_different_lengths_are_named():
    from autoopt.data.dataset import DataSet

    with pytest.raises(InputError, match=r"x 3, labels 2"):
        DataSet({"x": np.zeros((3, 1))}, np.zeros(2))
