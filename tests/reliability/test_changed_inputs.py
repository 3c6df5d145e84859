"""Files that change while a run reads them: results are stored by digests, and what was digested is what was read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from builders import cnn, mlp, write
from PIL import Image

import autoopt
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.admit import NotAdmitted, admit_model
from autoopt.observer import Observer
from autoopt.results import RunResult
from autoopt.settings import settings

pytestmark = pytest.mark.usefixtures("kept_workers")
SCRIPT = """
from autoopt import register, register_metric

@register("mine")
def mine(model):
    return model

@register_metric("offset", unit="1", direction="maximize")
def offset(outputs, labels):
    return {value}
"""


class Change(Observer):
    """Changes a file once the source model has been measured."""

    def __init__(self, change: Callable[[], object]) -> None:
        self.change = change

    def on_baseline(self, metrics: Mapping[str, Estimate]) -> None:
        self.change()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOOPT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    settings.cache_clear()
    return tmp_path


def write_arrays(file: str, model: Path, *, shift: int = 0, seed: int = 0) -> None:
    """Labelled items for which the model is always right, or always wrong with a `shift`."""
    inputs = np.random.default_rng(seed).standard_normal((200, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession(str(model))
    classes = session.run(None, {session.get_inputs()[0].name: inputs})[0].argmax(1)
    np.savez(file, x=inputs, labels=(classes + shift) % 4)


def run(model: Path, quantization: str = "dynamic_quantization", **options: object) -> RunResult:
    dag = {
        "name": "changing",
        "user_script": "script.py",
        "passes": {"tidy": {"pass": "shape_inference"}, "quant": {"pass": quantization}},
        "chains": [["tidy", "quant"]],
        "objectives": [{"metric": "size"}],
        "constraints": [{"metric": "accuracy", "max_drop": 1}, {"metric": "offset", "min": 0}],
        "search": {"trials": 2},
    }
    return autoopt.run(dag, model=model, out=None, **options)  # type: ignore[arg-type]


@pytest.fixture
def model(folder: Path) -> Path:
    """A model with labelled data, calibration data and a script."""
    path = write(mlp(width=256), folder / "mlp")
    write_arrays("evaluation.npz", path)
    write_arrays("calibration.npz", path, seed=1)
    Path("script.py").write_text(SCRIPT.format(value=1))
    return path


def replaced(file: str, change: Callable[[Path], object]) -> Callable[[], object]:
    """Write the changed file beside the old one and rename it, as careful exports do."""

    def work() -> None:
        new = Path(f"new.{file}")
        shutil.copyfile(file, new)
        change(new)
        new.replace(file)

    return work


@pytest.mark.parametrize("kind", ["labels", "renamed labels", "calibration", "script"])
def test_a_run_whose_input_changes_ends_and_stores_nothing_of_it(model: Path, folder: Path, kind: str) -> None:
    quantization = "static_quantization" if kind == "calibration" else "dynamic_quantization"
    other = {
        "labels": lambda: write_arrays("evaluation.npz", model, shift=1),
        "renamed labels": replaced("evaluation.npz", lambda file: write_arrays(str(file), model, shift=1)),
        "calibration": lambda: write_arrays("calibration.npz", model, seed=2),
        "script": lambda: Path("script.py").write_text(SCRIPT.format(value=2)),
    }[kind]
    changed = {"calibration": "calibration.npz", "script": "script.py"}.get(kind, "evaluation.npz")
    options = {"data": "evaluation.npz", "calibration": "calibration.npz"}
    shutil.copyfile(changed, "kept")
    with pytest.raises(InputError, match=f"{changed}: changed while the run read it"):
        run(model, quantization, observer=Change(other), **options)
    shutil.copyfile("kept", changed)
    result = run(model, quantization, **options)
    assert not result.reused
    assert result.best is not None
    assert result.best.metrics["accuracy"] > 0.9
    assert result.best.metrics["offset"] == 1


def test_an_image_in_a_folder_that_changes_ends_the_run(folder: Path) -> None:
    path = write(cnn(seed=1), folder / "cnn")
    generator = np.random.default_rng(0)
    for number in range(8):
        image = Path("images", str(number % 2), f"{number}.png")
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (8, 8), np.uint8)).save(image)
    Path("script.py").write_text(SCRIPT.format(value=1))
    black = Change(lambda: Image.fromarray(np.zeros((8, 8), np.uint8)).save("images/0/0.png"))
    data = {"path": "images", "load_dataset": {"type": "images", "params": {"mode": "L"}}}
    with pytest.raises(InputError, match="images: changed while the run read it"):
        run(path, observer=black, data=data)


def test_the_same_content_written_again_is_no_change(model: Path) -> None:
    again = Change(replaced("evaluation.npz", lambda file: None))
    result = run(model, observer=again, data="evaluation.npz")
    assert result.best is not None
    assert result.best.metrics["accuracy"] > 0.9


def test_a_model_that_is_replaced_while_it_is_copied_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of one export beside the graph of the other would be a model that nobody made."""
    import onnx

    source = folder / "exported.onnx"

    def export(seed: int) -> None:
        onnx.save(mlp(seed=seed), source, save_as_external_data=True, location="weights", size_threshold=0)

    export(0)
    from autoopt.model import admit

    copy = admit.append_part

    def copy_and_export(*arguments: int) -> object:
        copied = copy(*arguments)
        monkeypatch.setattr(admit, "append_part", copy)
        source.unlink()
        (folder / "weights").unlink()
        export(1)
        return copied

    monkeypatch.setattr(admit, "append_part", copy_and_export)
    with pytest.raises(NotAdmitted, match="changed while it was read"):
        admit_model(source, folder / "copy")
