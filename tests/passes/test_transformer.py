"""Fusion of transformer blocks, and the number that onnxruntime's attention adds to scores of padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step, steps
from micro_models import MODELS, made, normal, positive
from onnxruntime.transformers.shape_infer_helper import SymbolicShapeInferenceHelper

from autoopt.model import splitting
from autoopt.model.split import FOLDER, is_split
from autoopt.model.splitting import split_folder
from autoopt.passes.base import Refused
from autoopt.passes.fusion.transformer import TransformerFusion, count_attention, has_normalization, state_padding_value
from autoopt.passes.runner import run


def test_the_default_engine_fuses_attention_of_current_exports(tmp_path: Path) -> None:
    """The other engine finds none in it."""
    model = MODELS["attention"]()
    fused = step(tmp_path / "a", model, "transformer_fusion")
    assert fused["outcome"] == "ok", fused["message"]
    assert {"MultiHeadAttention", "Attention"} & set(ops(saved(fused)))
    other = step(tmp_path / "b", model, "transformer_fusion", engine="onnxruntime")
    assert other["outcome"] == "unchanged" or "attention" not in str(other["reports"]).lower()


def test_fused_models_import_the_domains_of_their_operators(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["skip_layer_norm"](), "transformer_fusion", engine="onnxruntime", opt_level=0)
    assert result["outcome"] == "ok", result["message"]
    model = saved(result)
    assert "com.microsoft" in {entry.domain for entry in model.opset_import}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("y = LayerNormalization <axis = -1> (x, w)", True),
        ("y = com.microsoft.SkipLayerNormalization (x, x, w)", True),
        ("y = ReduceMean <axes = [-1]> (x)", True),
        ("y = BatchNormalization (x, w, w, w, w)", False),
        ("y = Erf (x)", False),
    ],
)
def test_shapes_are_inferred_only_for_models_with_normalization(node: str, expected: bool) -> None:
    model = made(f"g (float[2, 8] x) => (float y) {{ {node} }}", domains=', "com.microsoft": 1', w=positive(8))
    assert has_normalization(model) is expected


def test_gelu_is_fused_in_a_model_without_normalization(tmp_path: Path) -> None:
    model = made(
        """g (float[2, 8] x) => (float[2, 8] y) {
        a = MatMul (x, w)\n d = Div (a, root)\n e = Erf (d)\n o = Add (e, one)
        m = Mul (a, o)\n y = Mul (m, half) }""",
        w=normal(8, 8),
        root=np.float32(2**0.5),
        one=np.float32(1),
        half=np.float32(0.5),
    )
    fused = step(tmp_path, model, "transformer_fusion", engine="onnxruntime", opt_level=0)
    assert fused["outcome"] == "ok", fused["message"]
    assert "Gelu" in ops(saved(fused))


HEADS, INNER, LENGTH = 4, 32, 8


def encoder_layer(kind: str) -> onnx.ModelProto:
    """One layer of attention as exports of a kind of transformer have it: `bert` (also ViT), `whisper`, `clip`, `t5`.

    `masked` is BERT with an attention mask as an input, `joined` the same after a simplifier, `chosen` as
    transformers 5 exports it.
    """
    weights: dict[str, Any] = {name: normal(INNER, INNER) / INNER for name in ("wq", "wk", "wv", "wo")}
    weights |= {name: normal(INNER) for name in ("bq", "bk", "bv", "bo", "shift")}
    weights |= {"ones": positive(INNER), "heads": np.array([0, LENGTH, HEADS, INNER // HEADS])}
    weights |= {"merge": np.array([0, LENGTH, INNER]), "scale": np.float32(8**0.5), "two": np.float32(2)}
    weights |= {"mask": np.triu(np.full((1, 1, LENGTH, LENGTH), -1e9, np.float32), 1), "tiny": np.float32(1e-6)}
    weights |= {
        "first": np.array([1]),
        "second": np.array([2]),
        "both": np.array([1, 2]),
        "lowest": np.finfo(np.float32).min,
    }
    weights |= {"items": np.arange(LENGTH).reshape(1, 1, 1, LENGTH), "all": np.array([-1]), "true": np.array(True)}
    weights |= {"row": np.array([1, 1, 1, LENGTH]), "rows": np.array([1, 1, LENGTH, LENGTH]), "zero": np.float32(0)}
    weights |= {"both": np.array([1, 2]), "one": np.float32(1), "rise": normal(1, HEADS, LENGTH, LENGTH)}
    lines = ["n = LayerNormalization <axis = -1> (x, ones, shift)"]
    if kind == "t5":
        lines = ["p = Pow (x, two)", "v = ReduceMean <axes = [-1]> (p)", "e = Add (v, tiny)", "r = Sqrt (e)"]
        lines += ["i = Div (one, r)", "m = Mul (x, i)", "n = Mul (ones, m)"]
    for name in "qkv":
        product = f"{name}1 = MatMul (n, w{name})"
        added = f"{name}2 = Add (b{name}, {name}1)"
        if kind == "t5" or (kind == "whisper" and name == "k"):
            added = f"{name}2 = Identity ({name}1)"
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        lines += [product, added, f"{name}3 = Identity ({name}2)"]
        if name == "q" and kind in ("whisper", "clip"):
            lines[-1] = "q3 = Mul (q2, scale)"
        lines += [f"{name}4 = Reshape ({name}3, heads)", f"{name}5 = Transpose <perm = {order}> ({name}4)"]
    lines.append("s1 = MatMul (q5, k5)")
    scores = {
        "bert": ["s2 = Div (s1, scale)"],
        "masked": [
            *("m1 = Unsqueeze (given, first)", "m2 = Unsqueeze (m1, second)", "m3 = Cast <to = 1> (m2)"),
            *("m4 = Sub (one, m3)", "m5 = Mul (m4, lowest)", "s3 = Div (s1, scale)", "s2 = Add (s3, m5)"),
        ],
        "clip": ["s2 = Add (s1, mask)"],
        "t5": ["s2 = Add (s1, rise)"],
        "whisper": ["s2 = Identity (s1)"],
    }
    scores["joined"] = ["m2 = Unsqueeze (given, both)", *scores["masked"][2:]]
    scores["chosen"] = [
        *("m1 = Cast <to = 9> (given)", "m2 = Flatten <axis = 2> (m1)", "m3 = Gather <axis = 0> (m2, items)"),
        *("m4 = Reshape (m3, all)", "m5 = Reshape (m4, row)", "m6 = And (true, m5)", "m7 = Expand (m6, rows)"),
        *("m8 = Where (m7, zero, lowest)", "s3 = Div (s1, scale)", "s2 = Add (s3, m8)"),
    ]
    lines += scores[kind]
    lines += ["a = Softmax <axis = -1> (s2)", "c1 = MatMul (a, v5)", "c2 = Transpose <perm = [0, 2, 1, 3]> (c1)"]
    lines += ["c3 = Reshape (c2, merge)", "o1 = MatMul (c3, wo)", "o2 = Add (bo, o1)", "y = Add (x, o2)"]
    text = "\n".join(lines)
    shape = f"float[1, {LENGTH}, {INNER}]"
    inputs = f"{shape} x"
    if kind in ("masked", "joined", "chosen"):
        inputs += f", int64[1, {LENGTH}] given"
    return made(f"g ({inputs}) => ({shape} y) {{ {text} }}", **weights)


@pytest.mark.parametrize("kind", ["bert", "masked", "whisper", "clip", "t5"])
def test_attention_of_each_kind_of_encoder_is_fused_without_naming_the_kind(tmp_path: Path, kind: str) -> None:
    result = steps(tmp_path, encoder_layer(kind), [("identity_elimination", {}), ("transformer_fusion", {})])[-1]
    assert result["outcome"] == "ok", result["message"]
    assert count_attention(saved(result)), ops(saved(result))


def test_attention_whose_result_a_simplifier_made_rows_is_fused(tmp_path: Path) -> None:
    """With a fixed batch, onnxslim writes the product behind the attention as Gemm of rows."""
    passes = [("identity_elimination", {}), ("simplify", {"engine": "onnxslim"}), ("shape_inference", {})]
    passes += [("transformer_fusion", {}), ("dynamic_quantization", {"op_types": ["MatMul"]})]
    _, simplified, *_, fused, quantized = steps(tmp_path, encoder_layer("whisper"), passes)
    assert "Gemm" in ops(saved(simplified))
    assert fused["outcome"] == "ok", fused["message"]
    assert quantized["outcome"] == "ok", quantized["message"]
    assert count_attention(saved(fused)), ops(saved(fused))


@pytest.mark.parametrize(("kind", "engine"), [("bert", "auto"), ("t5", "auto"), ("whisper", "onnxscript")])
def test_fusion_makes_the_same_of_a_split_model(
    tmp_path: Path, kind: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", INNER * INNER)
    cleaned = step(tmp_path, encoder_layer(kind), "identity_elimination")
    whole = step(tmp_path / "whole", saved(cleaned), "transformer_fusion", engine=engine)
    assert whole["outcome"] == "ok", whole["message"]
    graph = split_folder(Path(cleaned["path"]), tmp_path / FOLDER)
    payload = {
        "model": {"path": str(graph)},
        "steps": [{"pass": "transformer_fusion", "params": {"engine": engine}}],
        "output": str(tmp_path / "split-out"),
        "split_folder": str(tmp_path / FOLDER),
    }
    (split,) = run(payload)["steps"]
    assert is_split(split["path"])
    assert split["digest"] == whole["digest"]


def test_all_attempts_share_their_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of transformer are tried, and each asks up to eight times."""
    infer, inferred = SymbolicShapeInferenceHelper.infer, []

    def counted(self: SymbolicShapeInferenceHelper, *sizes: object) -> bool:
        inferred.append(self)
        return bool(infer(self, *sizes))

    monkeypatch.setattr(SymbolicShapeInferenceHelper, "infer", counted)
    fused = TransformerFusion()(encoder_layer("whisper"))
    assert count_attention(fused) == 1
    assert len(inferred) <= 2


def test_a_mask_whose_steps_a_simplifier_joined_is_known(tmp_path: Path) -> None:
    model = encoder_layer("joined")
    model.graph.node[-1].output[0] = "sum"
    model.graph.node.append(onnx.helper.make_node("LayerNormalization", ["sum", "ones", "shift"], ["y"], axis=-1))
    passes = [("identity_elimination", {}), ("transformer_fusion", {"engine": "onnxruntime"})]
    result = steps(tmp_path, model, passes)[-1]
    assert result["outcome"] == "ok", result["message"]
    assert count_attention(saved(result)), ops(saved(result))


PADDED = {"none": [1] * LENGTH, "left": [0] * 3 + [1] * 5, "holes": [1, 0] * 4, "all": [0] * LENGTH}


@pytest.mark.parametrize("kind", ["masked", "chosen"])
@pytest.mark.parametrize("lowest", [np.finfo(np.float32).min, np.float32(-1e4), np.float32(-1e9)])
@pytest.mark.parametrize("engine", ["auto", "onnxruntime"])
def test_padding_adds_the_number_of_the_model(tmp_path: Path, kind: str, lowest: np.float32, engine: str) -> None:
    """onnxruntime's operator adds -1e4 unless told otherwise."""
    model = encoder_layer(kind)
    for tensor in model.graph.initializer:
        if tensor.name == "lowest":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(lowest), "lowest"))
    model.graph.node[-1].output[0] = "sum"
    model.graph.node.append(onnx.helper.make_node("LayerNormalization", ["sum", "ones", "shift"], ["y"], axis=-1))
    passes = [("identity_elimination", {}), ("transformer_fusion", {"engine": engine})]
    result = steps(tmp_path, model, passes)[-1]
    assert result["outcome"] == "ok", result["message"]
    assert count_attention(saved(result)), ops(saved(result))
    for given in PADDED.values():
        feed = {"x": normal(1, LENGTH, INNER, seed=3), "given": np.array([given])}
        (expected,), (new,) = (outputs(each, tmp_path, feed) for each in (model, saved(result)))
        np.testing.assert_allclose(new, expected, rtol=1e-4, atol=1e-5)


LOWEST = float(np.finfo(np.float32).min)


def padded(attributes: str = "", mask: str = "m") -> onnx.ModelProto:
    return made(
        f"g (float[1, 4, 8] x, float[8, 24] w, float[24] b, int32[1, 4] m) => (float y)"
        f"{{ y = com.microsoft.Attention <num_heads = 2{attributes}> (x, w, b, {mask}) }}",
        domains=', "com.microsoft": 1',
    )


def with_numbers(*numbers: float) -> onnx.ModelProto:
    model = made("g (float[1] x) => (float[1] y) { y = Neg (x) }")
    for index, number in enumerate(numbers):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(number), f"n{index}"))
    return model


def stated(model: onnx.ModelProto) -> list[float]:
    return [attribute.f for attribute in model.graph.node[0].attribute if attribute.name == "mask_filter_value"]


@pytest.mark.parametrize("number", [LOWEST, -1e9, -1e4, -np.inf])
def test_the_number_of_the_source_is_stated(number: float) -> None:
    model = padded()
    state_padding_value(model, with_numbers(2, number, -1, number))
    assert stated(model) == [np.float32(number)]


def test_a_stated_number_and_attention_without_padding_stay() -> None:
    for model in (padded(", mask_filter_value = -5000.0"), padded(mask=""), padded(", unidirectional = 1", mask="")):
        before = model.SerializeToString()
        state_padding_value(model, with_numbers(LOWEST, -1e9))
        assert model.SerializeToString() == before


@pytest.mark.parametrize("numbers", [(), (LOWEST, -1e9)])
def test_an_unknown_number_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(Refused, match="unknown"):
        state_padding_value(padded(), with_numbers(*numbers))


def test_a_number_counts_whatever_its_rank() -> None:
    model = with_numbers(LOWEST)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((1, 1, 1, 1), -1e4, np.float32), "hidden"))
    with pytest.raises(Refused, match="unknown"):
        state_padding_value(padded(), model)


def test_causal_attention_with_padding_is_refused() -> None:
    """It gives an item behind nothing but padding its own value; models give it the mean of others."""
    with pytest.raises(Refused, match="causal"):
        state_padding_value(padded(", unidirectional = 1"), with_numbers(LOWEST))
