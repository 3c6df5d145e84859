"""Models, data and a fake machine for tests of measuring."""

from __future__ import annotations

import builders
import numpy as np
import pytest
from fake_machine import Machine
from measure_helpers import run

from autoopt.measure.latency import timer
from autoopt.measure.latency.busy import Load
from autoopt.model import io


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """A source model, an equal copy, one with other weights, and labelled data that the source gets right."""
    root = tmp_path_factory.mktemp("models")
    source = builders.mlp()
    paths = {
        "source": io.save(source, root / "source"),
        "copy": io.save(source, root / "copy"),
        "other": io.save(builders.mlp(seed=1), root / "other"),
    }
    inputs = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    labels = run(paths["source"], inputs).argmax(1)
    np.savez(root / "data.npz", x=inputs, labels=labels)
    np.savez(root / "unlabelled.npz", x=inputs)
    return {
        **{n: str(p) for n, p in paths.items()},
        "data": str(root / "data.npz"),
        "plain": str(root / "unlabelled.npz"),
    }


@pytest.fixture
def machine(monkeypatch) -> Machine:
    """A machine whose clock moves only when a model runs on it."""
    machine = Machine()
    monkeypatch.setattr("time.perf_counter_ns", machine.clock)
    monkeypatch.setattr("time.thread_time_ns", machine.thread_time)
    monkeypatch.setattr("time.monotonic", lambda: machine.now / 1e9)
    monkeypatch.setattr(timer.ThreadUsage, "now", machine.usage)
    monkeypatch.setattr(Load, "between", lambda before, after: machine.load)
    for name in ("can_time_on_core", "_has_fine_core_clock"):
        monkeypatch.setattr(timer, name, lambda: True)
    for name in ("timer_overhead", "_core_overhead"):
        monkeypatch.setattr(timer, name, lambda: 0.0)
    return machine
