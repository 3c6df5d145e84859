"""onnx-ir and onnxscript, applied quietly."""

from __future__ import annotations

import numpy as np
from bench import ops
from micro_models import made

from autoopt.passes.cleanup.simplifiers import RewriteRules


def test_rewriting_infers_shapes_first() -> None:
    """Without them, onnxscript's rules on Relu and Clip raise."""
    model = made(
        "g (float[2, 4] x) => (float[2, 4] y) { r = Relu (x)\n y = Clip (r, low, high) }",
        low=np.float32(-1),
        high=np.float32(2),
    )
    assert ops(RewriteRules(rules=["clip"])(model)) == ["Clip"]
