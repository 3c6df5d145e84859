"""One pass on one model through the runner, as a chain runs it, and the outputs of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.runner import run
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.output_comparison import Equivalence, compare_outputs
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
from autoopt.registry import Tolerance


def calibration(model: onnx.ModelProto, folder: Path, items: int = 8) -> str:
    """A file of synthetic calibration items for `model`."""
    feeds = [next(synthetic_feeds(model, seed=seed)) for seed in range(items)]
    path = folder / "calibration.npz"
    np.savez(path, **{name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]})
    return str(path)


def step(folder: Path, model: onnx.ModelProto, name: str, data: bool = False, **params: Any) -> dict[str, Any]:
    """What became of the pass `name` on `model`."""
    return steps(folder, model, [(name, params)], data)[-1]


def steps(
    folder: Path, model: onnx.ModelProto, passes: list[tuple[str, Mapping[str, Any]]], data: bool = False
) -> list[dict[str, Any]]:
    """What became of the passes, one after the other, on `model`."""
    payload = {
        "model": {"path": str(io.save(model, folder / "source"))},
        "steps": [{"pass": name, "params": dict(params)} for name, params in passes],
        "output": str(folder / "out"),
        "data": calibration(model, folder) if data else None,
    }
    results: list[dict[str, Any]] = run(payload)["steps"]
    return results


def saved(result: dict[str, Any]) -> onnx.ModelProto:
    """The model that a step left."""
    return io.load(Path(result["path"]) / "model.onnx")


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def same(a: onnx.ModelProto, b: onnx.ModelProto, folder: Path) -> bool:
    """True if both models have the same outputs."""
    feeds = next(synthetic_feeds(a))
    results = [run_once(io.save(model, folder / str(i)), feeds) for i, model in enumerate((a, b))]
    return compare_outputs(results[0], results[1], "equal").status == "same"


def compare(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    folder: Path,
    feeds: dict[str, Any] | None = None,
    tolerance: Tolerance = "equal",
) -> Equivalence:
    """Compare the outputs of two models."""
    feeds = feeds or next(synthetic_feeds(before))
    expected = run_once(io.save(before, folder / "before"), feeds)
    return compare_outputs(expected, run_once(io.save(after, folder / "after"), feeds), tolerance)


def outputs(
    model: onnx.ModelProto, folder: Path, feeds: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> list[Any]:
    """The outputs of `model` on `feeds`."""
    return list(make_session(io.save(model, folder / "run"), options or {}).run(None, dict(feeds)))


def assert_alike(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    folder: Path,
    feeds: Mapping[str, Any],
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Assert that both models give the same outputs on `feeds` but for rounding."""
    for old, new in zip(outputs(before, folder, feeds), outputs(after, folder, feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=rtol, atol=atol)


def cosine(a: Any, b: Any) -> float:
    x, y = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))
