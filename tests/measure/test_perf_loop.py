"""The benchmark's plain loop and the latency meter run a model in the same configuration."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import builders
import numpy as np
import pytest

from autoopt.measure.inference import ModelRunner, evaluation_data, sized
from autoopt.measure.latency import prepare
from autoopt.measure.request import MeasureRequest
from autoopt.model import io

SCRIPT = Path(__file__).parents[2] / "benchmarks/measurement/perf_loop.py"
spec = importlib.util.spec_from_file_location("perf_loop", SCRIPT)
assert spec
assert spec.loader
perf_loop = importlib.util.module_from_spec(spec)
spec.loader.exec_module(perf_loop)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[str, str]:
    root = tmp_path_factory.mktemp("loop")
    model = io.save(builders.mlp(), root)
    np.savez(root / "data.npz", x=np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32))
    return str(model), str(root / "data.npz")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"graph_optimization_level": "basic", "enable_cpu_mem_arena": False, "enable_mem_pattern": False},
        {"execution_mode": "parallel", "intra_op_num_threads": 2, "inter_op_num_threads": 2},
        {"config": {"session.disable_prepacking": "1"}, "disabled_optimizers": ["ConstantFolding"]},
    ],
    ids=["plain", "memory", "threads", "entries"],
)
def test_both_make_the_same_session_and_the_same_inputs(files, options, monkeypatch):
    model, data = files
    payload = {"candidate": {"path": model, "session_options": options}, "data": data}
    request = MeasureRequest.from_json(payload)
    request, _ = sized(request)
    ours = ModelRunner.open(request.candidate, request).session
    theirs = perf_loop.make(model, options, threads=1)
    assert perf_loop.configuration(ours) == perf_loop.configuration(theirs)
    for key in options.get("config", {}):
        entry = [s.get_session_options().get_session_config_entry(key) for s in (ours, theirs)]
        assert entry[0] == entry[1] == options["config"][key]
    fed = []
    monkeypatch.setattr(prepare, "caller", lambda session, feeds, is_bound: fed.append(feeds))
    for number in range(7):  # more than there are items
        prepare.subject_of(request, evaluation_data(request), request.candidate).make(number)
        other = perf_loop.item(theirs, data, number)
        assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in fed[-1].items()} == {
            n: (a.dtype, a.shape, a.tobytes()) for n, a in other.items()
        }


def test_the_loop_runs_by_itself(files):
    model, data = files
    done = subprocess.run([sys.executable, str(SCRIPT), model, data, "--seconds", "0"], capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert found["inferences"] >= 5
    assert found["ms"] > 0
    assert found["configuration"]["intra_op_num_threads"] == 1
