"""Perplexity, greedy tokens and speed of decoders with a plain loop, without autoopt: does a result hold?

    python benchmarks/language/by_hand.py TOKENS.npz SOURCE.onnx MODEL.onnx

For each model: perplexity of the texts, median time to the first token and tokens per second after it; then how many
texts all models continue with the same 32 tokens. The models take turns.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import onnxruntime as ort

STEPS, PROMPTS = 32, 24


class Model:
    """A session of a decoder with a cache, and the times measured so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]
        self.first_ms: list[float] = []
        self.rates: list[float] = []

    def run(self, tokens: np.ndarray, cache: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        past = next(iter(cache.values())).shape[2]
        count = past + tokens.shape[1]
        inputs = {"input_ids": tokens, "attention_mask": np.ones((1, count), np.int64), **cache}
        inputs["position_ids"] = np.arange(past, count)[None]
        return dict(zip(self.names, self.session.run(None, inputs), strict=True))

    def empty_cache(self) -> dict[str, np.ndarray]:
        past = [value for value in self.session.get_inputs() if value.name.startswith("past_key_values")]
        return {value.name: np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32) for value in past}

    def negative_log_likelihood(self, tokens: np.ndarray) -> float:
        """Mean over the tokens after the first."""
        logits = self.run(tokens[None], self.empty_cache())["logits"][0, :-1].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return -float(logs[np.arange(len(tokens) - 1), tokens[1:]].mean())

    def generate(self, prompt: np.ndarray) -> list[int]:
        """Continue a prompt greedily, with the cache."""
        began = time.perf_counter()
        outputs = self.run(prompt[None], self.empty_cache())
        first = time.perf_counter()
        tokens = []
        for _ in range(STEPS):
            tokens.append(int(outputs["logits"][0, -1].argmax()))
            cache = {name.replace("present", "past_key_values"): value for name, value in outputs.items()}
            del cache["logits"]
            outputs = self.run(np.array([[tokens[-1]]]), cache)
        self.first_ms.append(1e3 * (first - began))
        self.rates.append(STEPS / (time.perf_counter() - first))
        return tokens


def main() -> None:
    texts = np.load(sys.argv[1])["input_ids"].astype(np.int64)
    models = [Model(path) for path in sys.argv[2:]]
    continued = [[model.generate(prompt) for model in models] for prompt in texts[:PROMPTS]]
    for model in models:
        perplexity = np.exp(np.mean([model.negative_log_likelihood(text) for text in texts]))
        first, rate = np.median(model.first_ms), np.median(model.rates)
        print(f"{model.path}: perplexity {perplexity:.4f}, first token {first:.2f} ms, {rate:.0f} tokens/s")
    same = sum(all(tokens == each[0] for tokens in each) for each in continued)
    print(f"the same {STEPS} tokens for {same} of {len(continued)} prompts")


if __name__ == "__main__":
    main()
