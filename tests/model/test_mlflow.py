"""Models packaged by MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.model.mlflow import LARGEST, NotPackaged, is_packaged, packaged_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    folder.mkdir()
    return folder


def write(folder: Path, flavors: str, *files: str) -> None:
    (folder / "MLmodel").write_text(f"artifact_path: model\nflavors:\n{flavors}")
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"model")


def test_a_folder_with_an_mlmodel_file_is_packaged(folder: Path) -> None:
    assert not is_packaged(folder)
    write(folder, "  onnx: {}\n")
    assert is_packaged(folder)
    assert not is_packaged(folder / "MLmodel")


def test_the_onnx_flavour_names_its_file(folder: Path) -> None:
    write(folder, "  onnx: {data: net.onnx}\n  pytorch: {}\n", "net.onnx")
    assert packaged_model(folder) == folder / "net.onnx"


def test_the_onnx_flavour_has_a_usual_name(folder: Path) -> None:
    write(folder, "  onnx:\n", "model.onnx")
    assert packaged_model(folder) == folder / "model.onnx"


def test_an_exported_program_is_a_model(folder: Path) -> None:
    write(folder, "  pytorch: {model_data: data}\n", "data/model.pt2")
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
    write(folder, flavors, *files)
    with pytest.raises(NotPackaged, match=message) as error:
        packaged_model(folder)
    assert "\n" not in str(error.value)


def test_a_link_out_of_the_folder_is_not_followed(folder: Path) -> None:
    (folder.parent / "outside.onnx").write_bytes(b"")
    write(folder, "  onnx: {data: net.onnx}\n")
    (folder / "net.onnx").symlink_to(folder.parent / "outside.onnx")
    with pytest.raises(NotPackaged, match="not in it"):
        packaged_model(folder)


def test_a_huge_mlmodel_file_is_not_read(folder: Path) -> None:
    (folder / "MLmodel").write_bytes(b" " * (LARGEST + 1))
    with pytest.raises(NotPackaged, match=f"more than {LARGEST} bytes"):
        packaged_model(folder)
