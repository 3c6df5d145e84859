"""Write a decoder of full size with random weights: times, memory and sizes are those of a Llama, texts are not.

    pip install torch transformers optimum-onnx
    python benchmarks/language/make_random.py OUT [--layers 22] [--hidden 2048] [--inner 5632] [--tied]

Exports two layers as Optimum does and repeats the second one, so that memory holds two layers at most. The defaults are
the shape of TinyLlama (1.1 billion weights, 4.4 GB). Writes OUT/random_weights.onnx with external data, and random ids
of tokens to OUT/tokens.npz.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import external_data_helper, numpy_helper
from optimum.exporters.onnx import onnx_export_from_model
from transformers import LlamaConfig, LlamaForCausalLM

TEXTS, LENGTH = 16, 64
ALIGNMENT = 4096
LAYER = "/model/layers.1/"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=5632)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--groups", type=int, default=4, help="heads of keys and values")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--tied", action="store_true", help="the LM head has the weights of the embedding")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    ids = generator.integers(0, options.vocabulary, (TEXTS, LENGTH))
    np.savez(options.out / "tokens.npz", input_ids=ids)
    with tempfile.TemporaryDirectory(dir=options.out) as folder:
        onnx_export_from_model(new_model(options), Path(folder), task="text-generation-with-past")
        model = onnx.load(Path(folder) / "model.onnx")
    graph = Repeated(model, generator)
    for layer in range(2, options.layers):
        graph.add(layer)
    graph.connect(options.layers - 1)
    size = graph.save(options.out)
    print(f"random weights: {options.layers} layers, {size / 1e9:.2f} GB in {options.out}/random_weights.onnx")


def new_model(options: argparse.Namespace) -> LlamaForCausalLM:
    """Make two layers with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.inner,
        num_hidden_layers=2,
        num_attention_heads=options.heads,
        num_key_value_heads=options.groups,
        max_position_embeddings=2048,
        tie_word_embeddings=options.tied,
    )
    return LlamaForCausalLM(config).eval()


class Repeated:
    """An exported decoder of two layers, whose second layer is repeated."""

    def __init__(self, model: onnx.ModelProto, generator: np.random.Generator) -> None:
        self._model, self._graph, self._generator = model, model.graph, generator
        self._nodes = [node for node in model.graph.node if node.name.startswith(LAYER)]
        weights = {tensor.name: tensor for tensor in model.graph.initializer}
        read = {name for node in self._nodes for name in node.input}
        self._weights = [weights[name] for name in sorted(read & weights.keys())]
        results = {name for node in self._nodes for name in node.output}
        others = [node for node in model.graph.node if not node.name.startswith(LAYER)]
        self._readers = [node for node in others if results & set(node.input)]
        (self._result,) = {name for node in self._readers for name in node.input} & results
        self._before = self._result.replace("layers.1/", "layers.0/")
        self._shapes: dict[str, tuple[str, tuple[int, ...], float]] = {}
        """Repeated weight -> the weight that it is like, its shape, and its standard deviation."""
        self._added: list[onnx.NodeProto] = []

    def add(self, layer: int) -> None:
        """Append a copy of the second layer."""
        renamed = {self._before: self._name(self._result, layer - 1)}
        for tensor in self._weights:
            if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
                renamed[tensor.name] = f"{tensor.name}.{layer}"
                deviation = float(numpy_helper.to_array(tensor).std())
                self._shapes[renamed[tensor.name]] = (tensor.name, tuple(tensor.dims), deviation)
        for node in self._nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = self._name(node.name, layer)
            copy.input[:] = [renamed.get(name, self._name(name, layer)) for name in node.input]
            copy.output[:] = [self._name(name, layer) for name in node.output]
            self._added.append(copy)
        for values in (self._graph.input, self._graph.output):
            for value in list(values):
                if ".1." in value.name:
                    values.add().CopyFrom(value)
                    values[-1].name = self._name(value.name, layer)

    @staticmethod
    def _name(name: str, layer: int) -> str:
        name = name.replace(LAYER, f"/model/layers.{layer}/")
        return name.replace("past_key_values.1.", f"past_key_values.{layer}.").replace(
            "present.1.", f"present.{layer}."
        )

    def connect(self, layer: int) -> None:
        """Let what follows the layers read the last one."""
        for node in self._readers:
            node.input[:] = [self._name(name, layer) if name == self._result else name for name in node.input]
        nodes = list(self._graph.node)
        last = max(index for index, node in enumerate(nodes) if node.name.startswith(LAYER))
        del self._graph.node[:]
        self._graph.node.extend([*nodes[: last + 1], *self._added, *nodes[last + 1 :]])

    def save(self, folder: Path) -> int:
        """Write the model with external data, one weight after the other; return the bytes of the weights."""
        with (folder / "random_weights.onnx.data").open("wb") as file:
            tensors = []
            for name, array in self._arrays():
                file.write(bytes(-file.tell() % ALIGNMENT))
                tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=array.shape)
                tensor.raw_data = b" "  # the helper wants content in place of what it refers to
                place, size = file.tell(), array.nbytes
                external_data_helper.set_external_data(tensor, "random_weights.onnx.data", place, size)
                tensor.ClearField("raw_data")
                tensors.append(tensor)
                file.write(np.ascontiguousarray(array).tobytes())
            total = file.tell()
        names = {tensor.name for tensor in tensors}
        kept = [tensor for tensor in self._graph.initializer if tensor.name not in names]
        del self._graph.initializer[:]
        self._graph.initializer.extend([*kept, *tensors])
        (folder / "random_weights.onnx").write_bytes(self._model.SerializeToString())
        return total

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the matrices of the exported layers, then those of the repeated ones."""
        for tensor in self._graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) == 2:
                yield tensor.name, numpy_helper.to_array(tensor)
        for name, (_, shape, deviation) in self._shapes.items():
            yield name, self._generator.standard_normal(shape, np.float32) * np.float32(deviation)


if __name__ == "__main__":
    main()
