"""One rewrite rule applied to a model, and the outputs of both compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from autoopt.model import io
from autoopt.passes.rewrites.local_rewrites import LocalRewrites
from autoopt.passes.verification.equivalence import run_once
from autoopt.passes.verification.output_comparison import Equivalence, compare_outputs
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
from autoopt.registry import Tolerance


def rewrite(model: onnx.ModelProto, rule: str, *assume: str) -> onnx.ModelProto | None:
    """The model after one rule; None if the rule does not apply."""
    rewritten = LocalRewrites(rules=[rule], assume=list(assume))(model)
    return None if rewritten is model else rewritten


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
