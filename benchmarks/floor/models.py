"""The models, data and DAGs of the cases. Nothing is downloaded: the transformer has random weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, load, numpy_helper, save_model

DIGITS = Path(__file__).parents[2] / "dags" / "digits"
VOCABULARY = 30522
LARGEST_FILE = 1 << 30
"""Bytes of weights from which they lie in a file of their own: a file of ONNX holds less than 2 GiB."""
ENTROPY_BINS = 128
"""Bins that `quantize_static`, and with it Olive, uses for Entropy. autoopt's own default is 512, because 128 bins for
128 levels change nothing: the ranges are MinMax's."""
SEQUENCE = 32
"""Tokens of an item."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of an encoder; a layer has 4 hidden x hidden and 2 hidden x inner weights."""

    hidden: int
    inner: int
    heads: int
    layers: int


SMALL = Sizes(384, 1536, 12, 6)
"""MiniLM-L6: 90 MB in float32."""
MEDIUM = Sizes(1024, 4096, 16, 8)
"""528 MB."""
LARGE = Sizes(2048, 8192, 16, 9)
"""2.06 GB."""


@dataclass(frozen=True)
class Case:
    """One comparison: the files in its folder, and the work of each point."""

    name: str
    clean: str
    """The pass before quantization, which half of the points have: `onnxslim`, `transformer_fusion`, or none."""
    methods: tuple[str, ...]
    """Calibration methods of static quantization."""
    op_types: tuple[str, ...]
    """Operators to quantize; empty for all."""
    labelled: bool
    """The quality of a point is its accuracy; without labels, the distance of its outputs from the source's."""
    pairs: int
    """Blocks of candidate and source that autoopt times, each of 2.5 ms, or of two inferences if they are longer. At
    least two, since one says nothing about how sure its ratio is."""
    seconds: float
    """The setting `seconds`, of which autoopt warms up for 2 %: 5 ms are at least 15 inferences."""
    sizes: Sizes | None = None
    """Those of the encoder; None for the digits CNN."""
    weight_types: tuple[str, ...] = ("QInt8", "QUInt8")
    """Those of dynamic quantization."""


CASES = {
    "cnn": Case("cnn", "onnxslim", ("MinMax", "Entropy", "Percentile"), (), True, 2, 0.25),
    "quantization": Case("quantization", "", ("MinMax", "Entropy", "Percentile"), (), True, 2, 0.25),
    "transformer": Case("transformer", "transformer_fusion", ("MinMax",), ("MatMul",), False, 5, 2.0, SMALL),
    "medium": Case("medium", "", ("MinMax",), ("MatMul",), False, 5, 4.0, MEDIUM, ("QInt8",)),
    "large": Case("large", "", (), ("MatMul",), False, 5, 8.0, LARGE, ("QInt8",)),
}


def write_case(case: Case, folder: Path) -> None:
    """Write `model.onnx`, `evaluation.npz`, `calibration.npz`, `dag.json` and `default.json` to a folder.

    `default.json` has the same points, but searches and measures them as a DAG without further settings does.
    """
    folder.mkdir(parents=True)
    if case.sizes is None:
        for name in ("evaluation.npz", "calibration.npz"):
            shutil.copyfile(DIGITS / name, folder / name)
        model = load(DIGITS / "model.onnx")
        if not case.clean:
            del model.graph.value_info[:]  # Olive does not, and all its dynamic quantization would fail
        save_model(model, folder / "model.onnx")
    else:
        save_transformer(case.sizes, folder / "model.onnx")
        tokens = np.random.default_rng(0).integers(0, VOCABULARY, (8, SEQUENCE))
        for name in ("evaluation.npz", "calibration.npz"):
            np.savez(folder / name, input_ids=tokens)
    dag = dag_of(case)
    (folder / "dag.json").write_text(json.dumps(dag))
    del dag["search"], dag["measurement"]
    (folder / "default.json").write_text(json.dumps(dag))


def dag_of(case: Case) -> dict[str, object]:
    """The DAG whose points the floor also computes: {nothing, clean} x {dynamic, static}."""
    op_types = list(case.op_types)
    common = {
        "per_channel": "search",
        "activation_type": "QUInt8",
        "quant_format": "QDQ",
        "weight_type": "QInt8",
        "op_types": op_types,
    }
    methods = [method for method in case.methods if method != "Entropy"]
    static = {**common, "calibrate_method": {"search": methods}}
    weight_type = "search" if len(case.weight_types) > 1 else case.weight_types[0]
    dynamic = {"per_channel": "search", "weight_type": weight_type, "op_types": op_types}
    constraints = []
    if case.labelled:
        constraints.append({"metric": "accuracy", "max_drop": 1.0})
    measurement = {
        "replicas": 1,
        "max_pairs": case.pairs,
        "seconds": case.seconds,
        "rounds": 0,
        "quiet_seconds": 0,
    }
    passes: dict[str, object] = {"dynamic": {"pass": "dynamic_quantization", "params": dynamic}}
    if case.methods:
        passes["static"] = {"pass": "static_quantization", "params": static}
    if "Entropy" in case.methods:
        entropy = {**common, "calibrate_method": "Entropy", "num_bins": ENTROPY_BINS}
        passes["entropy"] = {"pass": "static_quantization", "params": entropy}
    chains = [[name] for name in passes]
    if case.clean:
        passes["clean"] = {"pass": case.clean}
        chains += [["clean", *chain] for chain in chains]
    return {
        "name": f"floor-{case.name}",
        "model": "model.onnx",
        "data": {"evaluation": "evaluation.npz", "calibration": "calibration.npz"},
        "passes": passes,
        "chains": chains,
        "objectives": [{"metric": "latency_p50", "goal": "minimize"}],
        "constraints": constraints,
        "search": {"strategy": "per-chain", "sampler": "exhaustive", "trials": 100},
        "measurement": measurement,
    }


def save_transformer(sizes: Sizes, path: Path) -> None:
    """Write an encoder of MiniLM's kind with random weights, in the operators of an export by torch."""
    model = _TransformerWriter(sizes).model()
    has_external = sum(len(weight.raw_data) for weight in model.graph.initializer) > LARGEST_FILE
    save_model(model, path, save_as_external_data=has_external, location=f"{path.name}.data")


class _TransformerWriter:
    """Collects nodes and weights."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(0)

    def model(self) -> ModelProto:
        """Return the model: `input_ids` int64 [batch, 32] -> `hidden` float [batch, 32, hidden]."""
        self._weight("embeddings", VOCABULARY, self.sizes.hidden)
        value = self._node("Gather", ["embeddings", "input_ids"], "embedded")
        for number in range(self.sizes.layers):
            value = self._layer(value, f"layer{number}")
        self.nodes[-1].output[0] = "hidden"
        shape = ["batch", SEQUENCE]
        inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape)]
        outputs = [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [*shape, self.sizes.hidden])]
        graph = helper.make_graph(self.nodes, "transformer", inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model

    def _layer(self, value: str, name: str) -> str:
        """Self-attention and a feed-forward network, each with a residual and a normalization."""
        hidden, inner_size, count = self.sizes.hidden, self.sizes.inner, self.sizes.heads
        heads = {}
        for part, order in (("query", (0, 2, 1, 3)), ("key", (0, 2, 3, 1)), ("value", (0, 2, 1, 3))):
            projected = self._linear(value, f"{name}.{part}", hidden, hidden)
            shape = self._constant(f"{name}.{part}.shape", np.array([0, 0, count, hidden // count]))
            split = self._node("Reshape", [projected, shape], f"{name}.{part}.split")
            heads[part] = self._node("Transpose", [split], f"{name}.{part}.heads", perm=order)
        scores = self._node("MatMul", [heads["query"], heads["key"]], f"{name}.scores")
        scale = self._constant(f"{name}.scale", np.array((hidden / count) ** 0.5, np.float32))
        scaled = self._node("Div", [scores, scale], f"{name}.scaled")
        attention = self._node("Softmax", [scaled], f"{name}.attention", axis=-1)
        mixed = self._node("MatMul", [attention, heads["value"]], f"{name}.mixed")
        joined = self._node("Transpose", [mixed], f"{name}.joined", perm=(0, 2, 1, 3))
        shape = self._constant(f"{name}.shape", np.array([0, 0, hidden]))
        context = self._node("Reshape", [joined, shape], f"{name}.context")
        output = self._linear(context, f"{name}.output", hidden, hidden)
        value = self._normalized(value, output, f"{name}.norm1")
        inner = self._gelu(self._linear(value, f"{name}.inner", hidden, inner_size), f"{name}.gelu")
        return self._normalized(value, self._linear(inner, f"{name}.outer", inner_size, hidden), f"{name}.norm2")

    def _linear(self, value: str, name: str, inputs: int, outputs: int) -> str:
        product = self._node("MatMul", [value, self._weight(f"{name}.weight", inputs, outputs)], f"{name}.product")
        return self._node("Add", [self._weight(f"{name}.bias", outputs), product], name)

    def _gelu(self, value: str, name: str) -> str:
        root = self._constant(f"{name}.root", np.array(2**0.5, np.float32))
        one = self._constant(f"{name}.one", np.array(1, np.float32))
        half = self._constant(f"{name}.half", np.array(0.5, np.float32))
        error = self._node("Erf", [self._node("Div", [value, root], f"{name}.div")], f"{name}.erf")
        product = self._node("Mul", [value, self._node("Add", [error, one], f"{name}.add")], f"{name}.mul")
        return self._node("Mul", [product, half], name)

    def _normalized(self, one: str, other: str, name: str) -> str:
        total = self._node("Add", [other, one], f"{name}.sum")
        scale = self._constant(f"{name}.weight", np.ones(self.sizes.hidden, np.float32))
        bias = self._constant(f"{name}.bias", np.zeros(self.sizes.hidden, np.float32))
        return self._node("LayerNormalization", [total, scale, bias], name, axis=-1, epsilon=1e-12)

    def _node(self, op_type: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def _weight(self, name: str, *shape: int) -> str:
        return self._constant(name, (self._rng.standard_normal(shape) * 0.04).astype(np.float32))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name
