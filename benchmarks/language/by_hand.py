"""Perplexity, greedy tokens and speed of decoders with a plain loop, without autoopt: does a result hold?

    python benchmarks/language/by_hand.py TOKENS.npz SOURCE.onnx MODEL.onnx [--random] [--prompts 24] [--steps 32]

For each model: perplexity of the texts, and how far its next tokens are from those of the first model (Kullback-Leibler
divergence, in thousandths of a nat); median time to the first token and tokens per second after it, also as ratios to
those of the first model with 95 % intervals of the medians; how many texts it continues with the same 32 tokens as the
first model. The models take turns. With `--random`, for random weights, times alone.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

WARM_UP = 2
"""Prompts of which the times do not count."""


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

    def log_probabilities(self, tokens: np.ndarray) -> np.ndarray:
        """Of all tokens after each but the last one."""
        logits = self.run(tokens[None], self.empty_cache())["logits"][0, :-1].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        logs: np.ndarray = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return logs

    def generate(self, prompt: np.ndarray, steps: int) -> list[int]:
        """Continue a prompt greedily, with the cache."""
        began = time.perf_counter()
        outputs = self.run(prompt[None], self.empty_cache())
        first = time.perf_counter()
        tokens = []
        for _ in range(steps):
            tokens.append(int(outputs["logits"][0, -1].argmax()))
            cache = {name.replace("present", "past_key_values"): value for name, value in outputs.items()}
            del cache["logits"]
            outputs = self.run(np.array([[tokens[-1]]]), cache)
        self.first_ms.append(1e3 * (first - began))
        self.rates.append(steps / (time.perf_counter() - first))
        return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--random", action="store_true", help="the weights are random: print times alone")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--steps", type=int, default=32)
    options = parser.parse_args()
    texts = np.load(options.tokens)["input_ids"].astype(np.int64)
    models = [Model(path) for path in options.models]
    source = models[0]
    prompts = texts[: options.prompts + WARM_UP]
    continued = [[model.generate(prompt, options.steps) for model in models] for prompt in prompts]
    for index, model in enumerate(models):
        print(f"{model.path}: {'random weights' if options.random else quality(model, source, texts)}")
        first, rate = np.median(model.first_ms), np.median(model.rates)
        print(f"  first token {first:.2f} ms {ratio(model.first_ms, source.first_ms)}")
        print(f"  {rate:.1f} tokens/s {ratio(model.rates, source.rates)}", flush=True)
        if not options.random:
            same = sum(tokens[index] == tokens[0] for tokens in continued)
            print(f"  the same {options.steps} tokens for {same} of {len(continued)} prompts")


def quality(model: Model, source: Model, texts: np.ndarray) -> str:
    """Perplexity of a model, and its divergence from the source."""
    losses, divergences = [], []
    for text in texts:
        expected, logs = source.log_probabilities(text), model.log_probabilities(text)
        losses.append(-logs[np.arange(len(text) - 1), text[1:]].mean())
        divergences.append((np.exp(expected) * (expected - logs)).sum(axis=-1).mean())
    return f"perplexity {np.exp(np.mean(losses)):.3f}, divergence {1e3 * np.mean(divergences):.3f} mnat"


def ratio(values: list[float], others: list[float]) -> str:
    """The median of the ratios by prompt with its 95 % interval, which are two of the ratios in order."""
    ratios = np.sort(np.divide(values, others)[WARM_UP:])
    margin = int(len(ratios) / 2 - 0.98 * np.sqrt(len(ratios)))
    return f"({np.median(ratios):.2f}x, {ratios[margin]:.2f} to {ratios[-1 - margin]:.2f})"


if __name__ == "__main__":
    main()
