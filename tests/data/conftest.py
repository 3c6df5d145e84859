"""A file of data."""

import numpy as np
import pytest
from steps_data import X


@pytest.fixture
def path(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, extra=X + 1, labels=np.arange(20))
    return str(tmp_path / "d.npz")
