"""Data in a file, and configurations of it."""

from __future__ import annotations

import numpy as np

from autoopt.data.opening import open_data

X = np.arange(60, dtype=np.float32).reshape(20, 3)


def opened(path, **config):
    return open_data({"path": path, **config})


def step(name, **params):
    return {"type": name, "params": params}
