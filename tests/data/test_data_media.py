"""Folders of images."""

from __future__ import annotations

import os
import sys
import wave
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper
from scipy.io import wavfile

from autoopt.data.opening import open_data
from autoopt.data.sources.media import load_sounds
from autoopt.data.worker import describe
from autoopt.errors import InputError
from autoopt.model import io


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"size": 16}, r"size must be \[height, width\], not 16"),
        ({"mean": [0.5, 0.5]}, "mean has 2 numbers for 3 channels"),
        ({"std": [0.5, 0.5], "mode": "L"}, "std has 2 numbers for 1 channels"),
    ],
)
def test_options_that_do_not_fit_the_images_are_named(tmp_path, params, words):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match=words):
        open_data({"path": str(tmp_path), "load_dataset": {"type": "images", "params": params}})


def test_classes_come_from_folders_or_a_file_of_labels(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat/1.png", (255, 0, 0)), ("dog/2.png", (0, 0, 255))):
        (tmp_path / "set" / name).parent.mkdir(parents=True)
        image.new("RGB", (4, 6), colour).save(tmp_path / "set" / name)
    data = open_data(str(tmp_path / "set"))
    assert data.columns["image"].shape == (2, 3, 6, 4)
    assert data.columns["image"][0, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    assert data.labels.tolist() == [0, 1]
    (tmp_path / "labels.csv").write_text("cat/1.png,7\ndog/2.png,3\n")
    params = {"labels": str(tmp_path / "labels.csv"), "size": [2, 2], "layout": "NHWC", "mean": [0.5, 0.5, 0.5]}
    other = open_data({"path": str(tmp_path / "set"), "load_dataset": {"type": "images", "params": params}})
    assert other.labels.tolist() == [7, 3]
    assert other.columns["image"].shape == (2, 2, 2, 3)
    assert other.columns["image"][0, 0, 0].tolist() == [0.5, -0.5, -0.5]


def test_a_table_may_list_the_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("1.png", (255, 0, 0)), ("2.jpg", (0, 0, 255))):
        image.new("RGB", (4, 6), colour).save(tmp_path / name)
    (tmp_path / "list.csv").write_text("image_path,category,width\n2.jpg,cat,4\n1.png,dog,4\n2.jpg,ant,4\n")
    data = open_data({"path": str(tmp_path / "list.csv"), "label_col": "category", "limit": 2})
    assert data.columns["image"].shape == (2, 3, 6, 4)
    assert data.columns["image"][1, :, 0, 0].tolist() == [1.0, 0.0, 0.0]
    assert data.labels.tolist() == [1, 2]
    widths = open_data({"path": str(tmp_path / "list.csv"), "label_col": "category", "input_cols": ["width"]})
    assert widths.columns["input"].shape == (3, 1)


def test_only_the_formats_of_the_suffixes_are_opened_and_only_files(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("L", (4, 4)).save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "b.png")
    assert len(open_data(str(tmp_path))) == 1
    image.new("L", (4, 4)).save(tmp_path / "c.png", "eps")  # Ghostscript would run it
    with pytest.raises(InputError, match=r"c\.png: not a readable image"):
        open_data(str(tmp_path))


def test_an_image_of_a_billion_pixels_is_named(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("L", (1, 1)).save(tmp_path / "a.bmp")
    content = bytearray((tmp_path / "a.bmp").read_bytes())
    content[18:26] = (30_000).to_bytes(4, "little") * 2
    (tmp_path / "a.bmp").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.bmp: not a readable image \(Image size"):
        open_data(str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "recordings"


def record(file: Path, samples: Any, rate: int = 8000) -> Path:
    """Write 16-bit samples, (samples,) or (samples, channels)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    values = np.asarray(samples, np.int16)
    with wave.open(str(file), "wb") as sound:
        sound.setnchannels(1 if values.ndim == 1 else values.shape[1])
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(values.tobytes())
    return file


def model(folder: Path, *inputs: Any) -> str:
    node = helper.make_node("Identity", [inputs[0].name], ["y"])
    return str(io.save(builders.model([node], list(inputs), [builders.tensor("y", None)], {}), folder / "model"))


def test_sub_folders_are_the_classes_and_items_have_the_length_that_the_model_takes(
    tmp_path: Path, folder: Path
) -> None:
    record(folder / "no" / "1.wav", np.full(300, 16384))
    record(folder / "yes" / "1.wav", np.full(100, -32768))
    source = model(tmp_path, builders.tensor("signal", ["batch", 1, 256]))
    data = open_data(str(folder), source)
    assert data.columns["signal"].shape == (2, 1, 256)
    assert data.columns["signal"].dtype == np.float32
    assert np.unique(data.columns["signal"][0]).tolist() == [0.5]
    assert data.columns["signal"][1, 0, [99, 100]].tolist() == [-1.0, 0.0]
    assert data.labels.tolist() == [0, 1]
    said = describe({"data": str(folder), "model": source})["reading"]
    assert said == (
        "WAV files at 8000 Hz, mixed to mono, cut or padded with zeros from 0.0125 to 0.0375 s to 256 samples "
        "(0.032 s), as input 'signal'; if the model expects another rate, give the option sample_rate"
    )


def test_a_table_may_list_the_sounds(tmp_path: Path, folder: Path) -> None:
    record(folder / "1.wav", np.full(300, 16384))
    record(folder / "2.wav", np.full(100, -32768))
    (tmp_path / "list.csv").write_text("clip,speaker\nrecordings/2.wav,ann\nrecordings/1.wav,bob\n")
    source = model(tmp_path, builders.tensor("signal", ["batch", 1, 256]))
    data = open_data(str(tmp_path / "list.csv"), source)
    assert data.columns["signal"][:, 0, 0].tolist() == [-1.0, 0.5]
    assert data.labels.tolist() == ["ann", "bob"]
    assert data.reading.startswith("files of column 'clip', labels of column 'speaker'; WAV files at 8000 Hz, mixed")


def test_an_open_length_leaves_each_file_its_own_and_lengths_and_rate_follow(tmp_path: Path, folder: Path) -> None:
    record(folder / "a.wav", np.arange(300))
    record(folder / "b.wav", np.arange(200))
    integers = TensorProto.INT64
    source = model(
        tmp_path,
        builders.tensor("waveforms", ["batch", "samples"]),
        builders.tensor("waveforms_lens", ["batch"], integers),
        builders.tensor("sr", [], integers),
    )
    feeds = [feed for feed, _ in open_data(str(folder), source).feeds()]
    assert [feed["waveforms"].shape for feed in feeds] == [(1, 300), (1, 200)]
    assert [feed["waveforms_lens"].tolist() for feed in feeds] == [[300], [200]]
    assert [feed["sr"].tolist() for feed in feeds] == [8000, 8000]
    assert open_data(str(folder), source).labels is None


def test_files_are_resampled_scaled_and_mixed(folder: Path) -> None:
    record(folder / "mono.wav", np.full(800, 8192), rate=8000)
    record(folder / "stereo.wav", np.full((1600, 2), [0, 16384]), rate=16000)
    with pytest.raises(InputError, match="sample rates from 8000 to 16000 Hz; add --sample-rate 8000"):
        open_data(str(folder))
    params = {"sample_rate": 16000, "scale": 4.0}
    sounds = open_data({"path": str(folder), "load_dataset": {"type": "sounds", "params": params}}).columns["audio"]
    assert sounds.shape == (2, 1600)
    np.testing.assert_allclose(sounds[:, 400:-400], 1.0, atol=0.01)


def test_a_model_of_two_channels_gets_both_in_its_order_of_axes(tmp_path: Path, folder: Path) -> None:
    stereo = np.stack([np.full(300, 16384), np.zeros(300)], axis=1)
    record(folder / "a.wav", stereo)
    first = open_data(str(folder), model(tmp_path / "first", builders.tensor("audio", ["n", 2, "samples"])))
    last = open_data(str(folder), model(tmp_path / "last", builders.tensor("audio", ["n", "samples", 2])))
    np.testing.assert_array_equal(first.columns["audio"][0], stereo.T / 32768)
    np.testing.assert_array_equal(last.columns["audio"][0], stereo / 32768)
    record(folder / "b.wav", np.zeros(300))
    with pytest.raises(InputError, match=r"b\.wav: has 1 channels, the model takes 2"):
        open_data(str(folder), model(tmp_path / "again", builders.tensor("audio", ["n", 2, "samples"])))


@pytest.mark.parametrize(("half", "kind"), [(192, np.uint8), (1 << 30, np.int32), (0.5, np.float32)])
def test_samples_of_all_kinds_become_values_up_to_one(folder: Path, half: float, kind: type) -> None:
    folder.mkdir()
    wavfile.write(folder / "a.wav", 8000, np.array([0, half], kind))
    assert open_data(str(folder)).columns["audio"][0, 1] == 0.5


def test_labels_of_a_file_are_class_ids_or_texts(tmp_path: Path, folder: Path) -> None:
    record(folder / "a.wav", np.zeros(9))
    record(folder / "b.wav", np.zeros(9))
    labels = tmp_path / "labels.csv"
    config = {"path": str(folder), "load_dataset": {"type": "sounds", "params": {"labels": str(labels)}}}
    for rows, expected in (("a.wav,7\nb.wav,3\n", [7, 3]), ('a.wav,"two words"\nb.wav,one\n', ["two words", "one"])):
        labels.write_text(rows)
        assert open_data(config).labels.tolist() == expected


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([("x", ["n", 80, "frames"])], "no inputs of the model look like a waveform .x nx80xframes.*npz"),
        ([("x", ["n", 13])], "no inputs of the model look like a waveform .x nx13"),
        ([("near_audio", ["n", "t"]), ("far_audio", ["n", "t"])], "2 inputs of the model look like a waveform"),
        ([("input", ["n", "t"]), ("state", [2, "n", 64])], "takes a sound piece by piece, with its state in 'state'"),
    ],
)
def test_models_that_take_no_single_waveform_are_refused(tmp_path: Path, folder: Path, inputs: Any, said: str) -> None:
    record(folder / "a.wav", np.zeros(9))
    with pytest.raises(InputError, match=said):
        open_data(str(folder), model(tmp_path, *(builders.tensor(name, shape) for name, shape in inputs)))


def test_the_user_may_say_which_input_takes_the_sounds(tmp_path: Path, folder: Path) -> None:
    record(folder / "1.wav", np.full(300, 16384))
    source = model(tmp_path, builders.tensor("a", ["batch", 300]), builders.tensor("b", ["batch", 300]))
    with pytest.raises(InputError, match="2 inputs of the model look like a waveform"):
        open_data(str(folder), source)
    assert list(open_data(str(folder), source, {"b": "sound"}).columns) == ["b"]
    assert "as input 'b'" in describe({"data": str(folder), "model": source, "roles": {"b": "sound"}})["reading"]


@pytest.mark.parametrize("content", [b"", b"RIFF", b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0" + bytes(20), b"x" * 100])
def test_a_broken_file_is_named(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / "a.wav").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.wav: not a readable WAV file \("):
        open_data(str(folder))


def test_a_missing_reader_is_named_with_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(folder / "1.wav", [1, 2])
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(InputError, match="need soundfile") as refused:
        load_sounds(str(folder))
    assert "autoopt[sounds]" in refused.value.remedy


def test_a_folder_of_neither_images_nor_sounds_says_what_is_read(folder: Path) -> None:
    folder.mkdir()
    with pytest.raises(InputError, match=r"holds no images \(.*\) and no sounds \(\.wav\)"):
        open_data(str(folder))


@pytest.mark.parametrize("rate", [0, -1, 768_001])
def test_a_rate_that_no_sound_has_is_refused(tmp_path: Path, rate: int) -> None:
    with pytest.raises(InputError, match=f"sample_rate must be 1 to 768000 Hz, not {rate}"):
        load_sounds(str(tmp_path), sample_rate=rate)
