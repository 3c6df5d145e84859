"""The copy of a model that carries rounding errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import outputs
from micro_models import MODELS, branches_of_outer_weights, made, normal

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.verification.noisy_model import MIN_OPSET, SLICES, STARTS, NoisyModel, noisy_model
from autoopt.passes.verification.rounding import NoiseSource, output_arrays
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds

INVALID = {"double_names"}
"""Models that the runtime refuses."""


def noisy(model: onnx.ModelProto, folder: Path) -> NoisyModel | None:
    return noisy_model(model, NoiseSource(model).computed_types())


def noise_of(text: str, folder: Path, opset: int = 17, **weights: np.ndarray) -> NoisyModel:
    copy = noisy(made(text, opset=opset, **weights), folder)
    assert copy is not None
    return copy


@pytest.mark.parametrize("name", [name for name in MODELS if name not in INVALID])
def test_a_copy_without_errors_computes_the_same(name: str, tmp_path: Path) -> None:
    """Factors of 1 and offsets of 0: what the noise is written around stays as it was."""
    model = MODELS[name]()
    before = model.SerializeToString()
    copy = noisy(model, tmp_path)
    assert model.SerializeToString() == before
    if copy is None or model.opset_import[0].version < SLICES:
        return
    feeds = next(synthetic_feeds(model))
    silent = {}
    for pool in copy.pools:
        dtype = np.float64 if pool.is_double else np.float32
        silent[pool.name] = np.full(STARTS + 100_000, 0.0 if pool.low == 0 else 1.0, dtype)
    options = {"graph_optimization_level": "disable"}
    exact = output_arrays(make_session(io.save(model, tmp_path / "model"), options).run(None, feeds))
    copied = output_arrays(make_session(io.save(copy.model, tmp_path / "copy"), options).run(None, {**feeds, **silent}))
    for one, other in zip(exact, copied, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)  # kernels differ for computed weights


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("g (float[4] x) => (float[4] y) { a = Relu (x)\n y = Neg (a) }", 0),
        ("g (float[4] x) => (float[4] y) { y = Exp (x) }", 1),
        ("g (float[4] x) => (float[4] y) { y = Sigmoid (x) }", 2),
        ("g (float[4] x, float[4] z) => (float[4] y) { y = Add (x, z) }", 1),
        ("g (float[4] x) => (float[4] y) { e = Exp (x)\n y = Add (e, x) }", 3),
        ("g (float[2, 4] x, float[4, 2] z) => (float[2, 2] y) { y = MatMul (x, z) }", 3),
        ("g (float[4] x) => (double[4] y) { y = Cast <to = 11> (x) }", 0),
        ("g (float[4] x) => (float16[4] y) { y = Cast <to = 10> (x) }", 1),
        ("g (int64[4] x, int64[4] z) => (int64[4] y) { y = Mul (x, z) }", 0),
        ("g (float[N] x) => (float[M] y) { s = Shape (x)\n f = Cast <to = 1> (s)\n y = Exp (f) }", 0),
    ],
    ids=[
        "exact operators", "a result", "a saturating result", "exact terms of a sum", "a rounded term", "a product",
        "a longer float", "a shorter float", "integers", "values of shapes only",
    ],
)  # fmt: skip
def test_noise_enters_where_something_is_rounded(text: str, places: int, tmp_path: Path) -> None:
    assert noise_of(text, tmp_path).places == places


def test_constants_with_fractions_are_rounded_and_whole_ones_are_not(tmp_path: Path) -> None:
    text = "g (float[2] x) => (float[2] y) { y = Add (x, c) }"
    assert noise_of(text, tmp_path / "whole", c=np.array([1, 2], np.float32)).places == 1
    assert noise_of(text, tmp_path / "fraction", c=np.array([1, 0.3], np.float32)).places == 2


@pytest.mark.parametrize(
    ("text", "jumps"),
    [
        ("g (float[4] x) => (float[4] y) { e = Exp (x)\n y = Floor (e) }", True),
        ("g (float[4] x) => (float[4] y) { y = Floor (x) }", False),
        ("g (float[4] x) => (int64[4] y) { e = Exp (x)\n y = Cast <to = 7> (e) }", True),
        ("g (float[4] x) => (double[4] y) { e = Exp (x)\n y = Cast <to = 11> (e) }", False),
        ("g (float[4] x) => (float[4] y) { e = Exp (x)\n y = Relu (e) }", False),
    ],
)
def test_outputs_jump_where_a_rounded_value_meets_a_boundary(text: str, jumps: bool, tmp_path: Path) -> None:
    assert noise_of(text, tmp_path).jumps is jumps


def test_operators_of_one_type_share_a_pool(tmp_path: Path) -> None:
    text = "g (float[4] x) => (float[4] y) { a = Exp (x)\n b = Log (a)\n y = Tanh (b) }"
    copy = noise_of(text, tmp_path)
    (pool,) = copy.pools
    assert copy.places == 3
    assert 0 < 1 - pool.low == pytest.approx(pool.high - 1)
    starts = {t.name: onnx.numpy_helper.to_array(t)[0] for t in copy.model.graph.initializer}
    assert len(set(starts.values())) == 3
    assert all(0 <= start < STARTS for start in starts.values())


def test_older_opsets_draw_numbers_in_the_model(tmp_path: Path) -> None:
    text = "g (float[4] x) => (float[4] y) { y = Exp (x) }"
    copy = noise_of(text, tmp_path, opset=SLICES - 1)
    assert copy.pools == ()
    first, second = (outputs(copy.model, tmp_path / str(n), {"x": normal(4)})[0] for n in range(2))
    assert (np.abs(first - second) < 1e-4).all()


def test_models_whose_types_are_unknown_have_no_copy(tmp_path: Path) -> None:
    old = made("g (float[4] x) => (float[4] y) { y = Exp (x) }", opset=MIN_OPSET - 1)
    for model in (old, MODELS["local_function"](), branches_of_outer_weights()):
        assert noisy_model(model, {}) is None
