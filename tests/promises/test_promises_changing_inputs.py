"""Files that change while a run reads them: what is stored belongs to the content that was read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import builders
import numpy as np
import onnxruntime
import pytest
from outside import WAITING_SCRIPT, Place, answer, read_until, wait_for_file, write_data, write_model
from PIL import Image

pytestmark = pytest.mark.service

DAG = """\
name: changing
user_script: script.py
passes: {{wait: {{pass: waits}}, quant: {{pass: {quantization}}}}}
chains: [[wait, quant], [quant, wait]]
objectives: [{{metric: size}}]
constraints: [{{metric: accuracy, max_drop: 0.3}}, {{metric: cost, max: 9}}]
search: {{trials: 2}}
measurement: {{seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}}
"""
SCRIPT = f"""\
{WAITING_SCRIPT}

from autoopt import register_metric


@register_metric("cost", unit="1", direction="minimize")
def cost(outputs, labels):
    return 1.0
"""
ARRAYS = ("--data", "evaluation.npz", "--calibration", "calibration.npz")
IMAGES = ("--data", "images", "--image-size", "8x8", "--grayscale")


def fill(place: Place) -> Place:
    """A model whose size a quantization halves, with all kinds of data for it."""
    write_model(place / "model.onnx", width=512)
    write_data(place / "evaluation.npz", place / "model.onnx")
    write_data(place / "calibration.npz", place / "model.onnx", seed=1)
    place.write("script.py", SCRIPT)
    return place


def fill_with_images(place: Place) -> Place:
    """60 images in a folder for each class that the model finds."""
    place.write("script.py", SCRIPT)
    place.write("model.onnx", builders.cnn(channels=64, seed=1).SerializeToString())
    session, rng = onnxruntime.InferenceSession((place / "model.onnx").read_bytes()), np.random.default_rng(0)
    for number in range(60):
        pixels = (rng.random((8, 8)) ** rng.uniform(0.1, 9) * 255).astype(np.uint8)
        scores = session.run(None, {"x": pixels[None, None].astype(np.float32) / 255})[0]
        folder = place / "images" / f"{scores.argmax()}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    for other in range(10):
        (place / "images" / f"{other}").mkdir(exist_ok=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(place / "images" / f"{other}" / "black.png")
    return place


def other_labels(place: Place) -> None:
    write_data(place / "evaluation.npz", place / "model.onnx", shift=1)


def other_labels_by_rename(place: Place) -> None:
    write_data(place / "new.npz", place / "model.onnx", shift=1).replace(place / "evaluation.npz")


def other_calibration(place: Place) -> None:
    x = np.random.default_rng(2).standard_normal((400, 8)).astype(np.float32) * 100
    np.savez(place / "calibration.npz", x=x)


def other_weights(place: Place) -> None:
    write_model(place / "model.onnx", width=512, seed=3)


def other_metric(place: Place) -> None:
    place.write("script.py", SCRIPT.replace("return 1.0", "return 2.0"))


def other_script(place: Place) -> None:
    place.write("script.py", SCRIPT.replace("return model", "raise ValueError('another script')"))


def other_images(place: Place) -> None:
    for image in sorted((place / "images").glob("*/*.png")):
        Image.fromarray(255 - np.asarray(Image.open(image))).save(image)


class Case(NamedTuple):
    """What a run reads, and what changes in it."""

    fill: Callable[[Place], Place]
    data: tuple[str, ...]
    quantization: str
    changed: str
    change: Callable[[Place], None]


CASES = {
    "labels": Case(fill, ARRAYS, "dynamic_quantization", "evaluation.npz", other_labels),
    "labels, by rename": Case(fill, ARRAYS, "dynamic_quantization", "evaluation.npz", other_labels_by_rename),
    "calibration": Case(fill, ARRAYS, "static_quantization", "calibration.npz", other_calibration),
    "model": Case(fill, ARRAYS, "dynamic_quantization", "model.onnx", other_weights),
    "script": Case(fill, ARRAYS, "dynamic_quantization", "script.py", other_script),
    "metric of a script": Case(fill, ARRAYS, "dynamic_quantization", "script.py", other_metric),
    "images": Case(fill_with_images, IMAGES, "dynamic_quantization", "images", other_images),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_file_that_changes_during_a_run_leaves_nothing_wrong_behind(case: Case, place: Place, tmp_path: Path) -> None:
    case.fill(place)
    place.write("dag.yaml", DAG.format(quantization=case.quantization))
    run = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline", "--json", *case.data)
    process = place.start(*run)
    said = read_until(process, "source model:")
    wait_for_file(place / "waits", process)
    changed, kept = place / case.changed, tmp_path / "kept"
    (shutil.copytree if changed.is_dir() else shutil.copy)(changed, kept)
    case.change(place)
    place.write("go", "")
    disturbed = place.finish(process, 0, 1, 2, 3, before=said)
    shutil.rmtree(changed) if changed.is_dir() else changed.unlink()
    kept.replace(changed)

    again = answer(place.call(*run).document)
    expected = answer(place.call(*run, AUTOOPT_HOME=str(tmp_path / "undisturbed")).document)
    assert again == expected
    if disturbed.out:  # it had a copy of the old content
        assert answer(disturbed.document) == expected
    else:
        assert case.changed in disturbed.err.splitlines()[-1]


def test_what_was_the_answer_to_other_files_is_not_the_answer_to_these(place: Place) -> None:
    """The same command again answers from the store as long as no file has changed, and never afterwards."""
    fill(place)
    place.write("go", "")
    place.write("dag.yaml", DAG.format(quantization="dynamic_quantization"))
    run = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline", "--json", *ARRAYS)
    first = place.call(*run).document
    again = place.call(*run).document
    assert (first["reused"], again["reused"], answer(again)) == (False, True, answer(first))
    for change in (other_labels, other_weights):
        change(place)
        document: Any = place.call(*run, codes=(0, 1)).document
        assert not document["reused"]
        assert document["baseline"]["metrics"]["accuracy"] != 1.0


def test_the_same_content_written_again_is_no_change(place: Place) -> None:
    fill(place)
    place.write("dag.yaml", DAG.format(quantization="dynamic_quantization"))
    process = place.start("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline", "--json", *ARRAYS)
    wait_for_file(place / "waits", process)
    for name in ("evaluation.npz", "script.py"):
        Path(shutil.copy(place / name, place / "new")).replace(place / name)
    place.write("go", "")
    assert place.finish(process).document["trials"]["ok"] == 2
