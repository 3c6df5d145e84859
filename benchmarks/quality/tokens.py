"""Compare the agreement of token embeddings with a retrieval task.

    python benchmarks/quality/tokens.py ZOO/minilm_l6

The folder is the sentence encoder that benchmarks/zoo/public.py makes. Its graph is cut before the pooling, so that it
returns `last_hidden_state`, as exported encoders do. The candidates are those of calibrate.py. The task: the nearest
other sentence, by the mean over the tokens, comes from the same module of Python's documentation (recall_at_1).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from autoopt.measure.quality.agreement import compare_parts
from autoopt.measure.quality.embeddings import recall_at_1
from autoopt.measure.quality.output_kinds import Part, parts_of

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "zoo")]
from calibrate import candidates  # noqa: E402  scripts beside this one
from public import sentences_by_module  # noqa: E402

OUTPUT = "last_hidden_state"
WIDTH = 384


def cut_before_pooling(path: Path) -> onnx.ModelProto:
    """The encoder with the vectors of its tokens as the output."""
    model = onnx.load(path)
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    weighted = producers[next(node for node in graph.node if node.op_type == "ReduceSum").input[0]]
    hidden = weighted.input[0]
    length = graph.input[0].type.tensor_type.shape.dim[1].dim_value
    needed, nodes = {hidden}, []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            nodes.insert(0, node)
            needed.update(node.input)
    nodes.append(helper.make_node("Identity", [hidden], [OUTPUT], OUTPUT))
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", length, WIDTH])
    weights = [tensor for tensor in graph.initializer if tensor.name in needed]
    cut = helper.make_graph(nodes, graph.name, graph.input, [output], weights)
    return helper.make_model(cut, opset_imports=model.opset_import, ir_version=model.ir_version)


class Encoder:
    """Runs candidates on the evaluation items and judges them."""

    def __init__(self, folder: Path) -> None:
        items = np.load(folder / "evaluation.npz")
        self._masks = list(items["attention_mask"])
        self._feeds = [
            {name: items[name][index : index + 1] for name in items.files} for index in range(len(self._masks))
        ]
        self._labels = np.array([module for _, module in sentences_by_module()][: len(self._masks)])
        self._source = self._run(folder / "model.onnx")
        self.recall = self._recall(self._source)

    def judge(self, path: Path) -> tuple[float, float, float]:
        """The drop in recall, the agreement as token embeddings, and that as plain values."""
        outputs = self._run(path)
        (part,) = parts_of([self._source], [OUTPUT], [None], masks=self._masks)
        agreements = [self._agreement(each, outputs) for each in (part, Part((0,), "values"))]
        return self.recall - self._recall(outputs), *agreements

    def _agreement(self, part: Part, outputs: Sequence[np.ndarray]) -> float:
        return compare_parts([part], [outputs], [self._source])[0].over(np.arange(len(outputs)))

    def _run(self, path: Path) -> list[np.ndarray]:
        session = onnxruntime.InferenceSession(path)
        return [session.run(None, feed)[0] for feed in self._feeds]

    def _recall(self, outputs: Sequence[np.ndarray]) -> float:
        pooled = [output[0][mask != 0].mean(axis=0) for output, mask in zip(outputs, self._masks, strict=True)]
        return float(np.mean(recall_at_1([np.stack(pooled)], self._labels)))


def main() -> None:
    """Print one row for each candidate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    source = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="tokens-") as work:
        folder = Path(work, "encoder")
        folder.mkdir()
        onnx.save(cut_before_pooling(source / "model.onnx"), folder / "model.onnx")
        for name in ("evaluation.npz", "calibration.npz"):
            shutil.copyfile(source / name, folder / name)
        encoder = Encoder(folder)
        print(f"recall of the source {encoder.recall:.4f}\n\n| candidate | loss of recall | agreement | as values |")
        print("|---|---|---|---|")
        for name, path in candidates(folder, Path(work)):
            drop, agreement, as_values = encoder.judge(path)
            print(f"| {name} | {drop:.4f} | {agreement:.4f} | {max(0.0, as_values):.4f} |", flush=True)


if __name__ == "__main__":
    main()
