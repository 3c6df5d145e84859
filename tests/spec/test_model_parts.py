"""The names of models that belong together, and the models of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.spec.model_parts import models_in, parse_parts


def test_models_are_named_on_the_command_line() -> None:
    assert parse_parts(["encoder=a.onnx", "decoder=b=c.onnx"]) == {"encoder": "a.onnx", "decoder": "b=c.onnx"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a=x.onnx", "a=y.onnx"], "a=y.onnx: two models are named 'a'"),
        (["a=x.onnx", "y.onnx"], "y.onnx: is not NAME=MODEL"),
        (["a=x.onnx"], "a=x.onnx: names one model; give its path alone"),
        (["a.b=x.onnx", "c=y.onnx"], "'a.b' has a dot"),
        (["a/b=x.onnx", "c=y.onnx"], "'a/b' is not a valid name"),
    ],
)
def test_wrong_names_are_refused(arguments: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_parts(arguments)


@pytest.mark.parametrize(
    ("files", "models"),
    [
        (["encoder_model", "decoder_model", "decoder_with_past_model"], ["decoder", "decoder_with_past", "encoder"]),
        (["encoder_model", "decoder_model", "decoder_model_merged"], ["decoder", "encoder"]),
        (["onnx/model", "onnx/model_fp16", "onnx/model_q4f16", "onnx/model_quantized"], ["model"]),
        (["onnx/encoder_model_int8", "onnx/encoder_model", "onnx/decoder_model"], ["decoder", "encoder"]),
        (["model_int8"], ["model_int8"]),
    ],
)
def test_the_models_of_a_folder_are_found(tmp_path: Path, files: list[str], models: list[str]) -> None:
    for name in files:
        path = tmp_path / f"{name}.onnx"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert sorted(models_in(tmp_path)) == models


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \.onnx file in this folder or its folder onnx"):
        models_in(tmp_path)
