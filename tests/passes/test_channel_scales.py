"""Factors moved from inputs into weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from bench import ops, outputs
from micro_models import made, normal, positive

from autoopt.passes.quantize.channel_scales import InputScales, find_groups, own_weight

BEFORE = {
    "layer normalization": "n = LayerNormalization <axis = -1> (x, s, b)",
    "root mean square": "q = Mul (x, x)\n n = Mul (q, s)",
    "gate": "u = MatMul (x, v)\n g = Sigmoid (x)\n n = Mul (g, u)",
    "skip normalization": "n, m, i, r = com.microsoft.SkipSimplifiedLayerNormalization (x, x, s)",
}


@pytest.mark.parametrize(("kind", "inserted"), [*((kind, False) for kind in BEFORE), ("Tanh", True)])
def test_the_product_stays_and_multiplications_are_inserted_only_where_needed(
    tmp_path: Path, kind: str, inserted: bool
) -> None:
    text = BEFORE.get(kind, "n = Tanh (x)")
    model = made(
        f"g (float[N, 8] x) => (float[N, 4] y) {{ {text}\n y = MatMul (n, w) }}",
        **{name: array for name, array in ARRAYS.items() if name in text or name == "w"},
    )
    before = ops(model)
    feed = {"x": normal(3, 8, seed=5)}
    expected = outputs(model, tmp_path, feed)[0]
    moved = ir.from_proto(model)
    ((value, consumers),) = [item for item in find_groups(moved.graph).items() if item[0].name == "n"]
    assert InputScales(moved, insert=True).move(value, consumers, 0.5 + np.arange(8))
    after = ir.to_proto(moved)
    assert (len(ops(after)) > len(before)) == inserted
    assert not np.array_equal(own_weight(consumers[0].inputs[1]), ARRAYS["w"])
    np.testing.assert_allclose(outputs(after, tmp_path, feed)[0], expected, rtol=1e-4, atol=1e-4)


ARRAYS = {"s": positive(8), "b": normal(8), "v": normal(8, 8), "w": normal(8, 4)}
