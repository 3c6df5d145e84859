"""Archives of models: what comes out, and what must not."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from builders import mlp, write
from interpreters import interpreter

from autoopt.errors import InputError
from autoopt.model import packaged_models
from autoopt.model.packaged_models import (
    LARGEST,
    NotPackaged,
    export,
    is_checkpoint,
    is_packaged,
    packaged_model,
    task_of,
)
from autoopt.problem.load import read_models


def tar(path: Path, *members: tuple[str, bytes | None], mode: str = "w:gz") -> Path:
    """`None` as content is a link to /etc/passwd."""
    with tarfile.open(path, mode) as made:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            info.size = len(content or b"")
            made.addfile(info, io.BytesIO(content or b""))
    return path


def unpack(source: Path, dest: Path) -> list[str]:
    models: list[str] = packaged_models.unpack({"source": str(source), "dest": str(dest)})["models"]
    return models


def test_models_and_what_lies_beside_them(tmp_path: Path) -> None:
    source = tar(tmp_path / "a.tar.gz", ("x/m.onnx", b"1"), ("x/weights.bin", b"2"), ("link.onnx", None))
    assert unpack(source, tmp_path / "out") == ["x/m.onnx"]
    assert (tmp_path / "out" / "x" / "weights.bin").read_bytes() == b"2"
    assert not os.path.lexists(tmp_path / "out" / "link.onnx")


@pytest.mark.parametrize("name", ["../m.onnx", "/m.onnx", "a/../../m.onnx"])
def test_nothing_is_written_outside(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="leads out of it"):
        unpack(tar(tmp_path / "a.tgz", (name, b"1")), tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(name, b"1")
    with pytest.raises(InputError, match="leads out of it"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not list(tmp_path.parent.glob("m.onnx"))


def test_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packaged_models, "FLOOR", 1000)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("m.onnx", bytes(10_000_000))
    with pytest.raises(InputError, match="far more than its own size"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
def test_no_archive(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be unpacked"):
        unpack(tmp_path / name, tmp_path / "out")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    folder.mkdir()
    return folder


def write_packaged(folder: Path, flavors: str, *files: str) -> None:
    (folder / "MLmodel").write_text(f"artifact_path: model\nflavors:\n{flavors}")
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"model")


def test_a_folder_with_an_mlmodel_file_is_packaged(folder: Path) -> None:
    assert not is_packaged(folder)
    write_packaged(folder, "  onnx: {}\n")
    assert is_packaged(folder)
    assert not is_packaged(folder / "MLmodel")


def test_the_onnx_flavour_names_its_file(folder: Path) -> None:
    write_packaged(folder, "  onnx: {data: net.onnx}\n  pytorch: {}\n", "net.onnx")
    assert packaged_model(folder) == folder / "net.onnx"


def test_the_onnx_flavour_has_a_usual_name(folder: Path) -> None:
    write_packaged(folder, "  onnx:\n", "model.onnx")
    assert packaged_model(folder) == folder / "model.onnx"


def test_an_exported_program_is_a_model(folder: Path) -> None:
    write_packaged(folder, "  pytorch: {model_data: data}\n", "data/model.pt2")
    assert packaged_model(folder) == folder / "data/model.pt2"


@pytest.mark.parametrize(
    ("flavors", "files", "message"),
    [
        ("  pytorch: {model_data: data}\n", ["data/model.pth"], "is pickled.*serialization_format='pt2'"),
        ("  sklearn: {}\n  keras: {}\n", [], r"another flavour \(keras, sklearn\).*mlflow\.onnx\.save_model"),
        ("  {}\n", [], r"another flavour \(none\)"),
        ("  onnx: {data: net.onnx}\n", [], "names 'net.onnx', which is not in it"),
        ("  onnx: {data: ../outside.onnx}\n", [], "which is not in it"),
        ("  onnx: {data: /etc/passwd}\n", [], "which is not in it"),
        ("  onnx: !!python/object/apply:os.system ['true']\n", [], "not an MLmodel file"),
        ("- a\n", [], "not an MLmodel file"),
    ],
)
def test_other_packages_are_refused_with_a_remedy(folder: Path, flavors: str, files: list[str], message: str) -> None:
    (folder.parent / "outside.onnx").write_bytes(b"")
    write_packaged(folder, flavors, *files)
    with pytest.raises(NotPackaged, match=message) as error:
        packaged_model(folder)
    assert "\n" not in str(error.value)


def test_a_link_out_of_the_folder_is_not_followed(folder: Path) -> None:
    (folder.parent / "outside.onnx").write_bytes(b"")
    write_packaged(folder, "  onnx: {data: net.onnx}\n")
    (folder / "net.onnx").symlink_to(folder.parent / "outside.onnx")
    with pytest.raises(NotPackaged, match="not in it"):
        packaged_model(folder)


def test_a_huge_mlmodel_file_is_not_read(folder: Path) -> None:
    (folder / "MLmodel").write_bytes(b" " * (LARGEST + 1))
    with pytest.raises(NotPackaged, match=f"more than {LARGEST} bytes"):
        packaged_model(folder)


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
MAKE = """
import transformers
shape = dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).save_pretrained("llama")
shape = dict(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
transformers.T5ForConditionalGeneration(transformers.T5Config(**shape)).save_pretrained("t5")
"""


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_a_folder_with_onnx_models_is_used_as_it_is(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **LLAMA)
    assert is_checkpoint(folder)
    write(mlp(), folder)
    assert not is_checkpoint(folder)
    first, parts = read_models([str(folder)], tmp_path / "home")
    assert (first, parts) == (str(folder / "model.onnx"), {})


def test_pickled_weights_are_no_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **LLAMA)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert not is_checkpoint(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [({}, "names no architecture"), ({**LLAMA, "auto_map": {"AutoModel": "net.py"}}, "code that the folder brings")],
)
def test_a_configuration_that_cannot_be_exported_is_named(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    folder = checkpoint(tmp_path / "m", **config)
    with pytest.raises(InputError, match=f"config.json.*{message}"):
        export({"source": str(folder), "dest": str(tmp_path)})


@pytest.mark.parametrize(
    ("architecture", "supported", "expected"),
    [
        ("LlamaForCausalLM", ["feature-extraction", "text-generation", "text-generation-with-past"], 2),
        ("GPT2LMHeadModel", ["text-generation", "text-generation-with-past"], 1),
        ("T5ForConditionalGeneration", ["feature-extraction", "text2text-generation-with-past"], 1),
        ("WhisperForConditionalGeneration", ["audio-classification", "automatic-speech-recognition-with-past"], 1),
        ("CLIPModel", ["feature-extraction", "zero-shot-image-classification"], 1),
        ("BertForSequenceClassification", ["feature-extraction", "text-classification"], 1),
        ("BertModel", ["feature-extraction", "feature-extraction-with-past"], 0),
    ],
)
def test_the_task_has_the_head_and_the_cache_of_the_architecture(
    architecture: str, supported: list[str], expected: int
) -> None:
    assert task_of(architecture, supported) == supported[expected]


@pytest.mark.service
@pytest.mark.xdist_group("torch")
def test_a_folder_is_exported_once_and_planned_under_its_name(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", "torch", "optimum-onnx")
    environ = {**os.environ, "AUTOOPT_HOME": str(tmp_path / "home")}
    made = subprocess.run([python, "-c", MAKE], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr

    def plan(model: str) -> str:
        command = [python, "-m", "autoopt", "plan", model]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    shown = plan("llama")
    assert shown.startswith("llama: ")
    assert "goal: maximize tokens_per_second" in shown
    (model,) = (tmp_path / "home" / "exported").glob("*/llama/model.onnx")
    before = model.stat().st_mtime_ns
    assert plan("llama") == shown
    assert model.stat().st_mtime_ns == before
    (encoder,) = subprocess.run(
        [
            python,
            "-c",
            "from autoopt.problem.load import models_of;"
            " import pathlib, sys; print(*models_of('t5', pathlib.Path(sys.argv[1])))",
            tmp_path / "home",
        ],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert encoder == "decoder encoder"
