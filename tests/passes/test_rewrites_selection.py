"""Rules on masks and selection keep every value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops
from micro_models import made
from rule_bench import compare, rewrite

MASK = np.asarray([[True, False, False], [False, True, True], [False, False, False]])


@pytest.mark.parametrize("inverted", [False, True])
def test_a_fixed_mask_becomes_a_penalty(tmp_path: Path, inverted: bool) -> None:
    mask, inputs = (~MASK, "m, s, p") if inverted else (MASK, "m, p, s")
    model = made(
        f"g (float[3, 3] s) => (float[3, 3] y) {{ w = Where ({inputs})\n y = Softmax (w) }}", m=mask, p=np.float32(-1e9)
    )
    after = rewrite(model, "replace_where_mask")
    assert after is not None
    assert "Add" in ops(after)
    assert compare(model, after, tmp_path).status == "same"


def test_a_softmax_along_another_axis_keeps_its_mask() -> None:
    model = made(
        "g (float[3, 3] s) => (float[3, 3] y) { w = Where (m, p, s)\n y = Softmax <axis = 0> (w) }",
        m=MASK,
        p=np.float32(-1e9),
    )
    assert rewrite(model, "replace_where_mask") is None


@pytest.mark.parametrize(("source", "to", "kind"), [("int64", 1, "float"), ("float32", 7, "int64")])
def test_a_cast_moves_into_the_values_of_onehot(tmp_path: Path, source: str, to: int, kind: str) -> None:
    model = made(
        f"g (int64[5] i) => ({kind}[5, 6] y) {{ h = OneHot (i, d, v)\n y = Cast <to = {to}> (h) }}",
        d=np.int64(6),
        v=np.asarray([0, 3], source),
    )
    after = rewrite(model, "fuse_cast_into_onehot")
    assert after is not None
    assert "Cast" not in ops(after)
    assert compare(model, after, tmp_path, tolerance="lossless").status == "same"
