"""Nodes that return their input as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs
from micro_models import made, normal

from autoopt.passes.onnx_tools.copies import skip_copies

CHAINS = {
    "in a row": ("a = Neg (x)\n b = Cast <to = 1> (a)\n c = Identity (b)\n d = Concat <axis = 0> (c)\n y = Neg (d)", 2),
    "in front of an output": ("a = Neg (x)\n b = Cast <to = 1> (a)\n y = Cast <to = 1> (b)", 1),
    "read beside an output": ("a = Neg (x)\n y = Identity (a)\n z = Neg (a)\n w = Neg (y)", 3),
    "of an input": ("y = Identity (x)", 1),
    "of an output": ("y = Neg (x)\n z = Identity (y)", 2),
    "twice in front of an output": ("a = Neg (x)\n y = Identity (a)\n z = Identity (a)", 2),
    "of another type": ("a = Cast <to = 7> (x)\n b = Identity (a)\n y = Cast <to = 1> (b)", 2),
    "before a copied cast": ("a = Cast <to = 7> (x)\n c = Cast <to = 1> (a)\n y = Identity (c)\n w = Neg (c)", 3),
}


@pytest.mark.parametrize("chain", list(CHAINS))
def test_only_copies_are_removed(tmp_path: Path, chain: str) -> None:
    text, left = CHAINS[chain]
    returned = ", ".join(f"float[N] {name}" for name in "yzw" if f"{name} =" in text)
    model = made(f"g (float[N] x) => ({returned}) {{ {text} }}")
    before = model.SerializeToString()
    shorter = skip_copies(model)
    onnx.checker.check_model(shorter, full_check=True)
    assert model.SerializeToString() == before
    assert len(ops(shorter)) == left
    feed = {"x": 3 * normal(5)}
    for new, old in zip(outputs(shorter, tmp_path, feed), outputs(model, tmp_path, feed), strict=True):
        np.testing.assert_array_equal(new, old)


def test_a_copy_that_a_body_reads_stays(tmp_path: Path) -> None:
    model = made(
        "g (float[N] x, bool c) => (float[N] y) { a = Identity (x)\n"
        " y = If (c) <then_branch = t () => (float[N] p) { p = Neg (a) },"
        " else_branch = e () => (float[N] q) { q = Abs (a) }> }"
    )
    assert skip_copies(model) == model
