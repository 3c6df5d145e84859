"""Train a small Llama on text files and export it as Optimum does, with a cache.

    pip install torch transformers tokenizers optimum-onnx
    python benchmarks/language/make_decoder.py TEXTS OUT [--pattern '**/*.py'] [--minutes 10] [--tied]

Writes OUT/model.onnx, and ids of texts: held out in OUT/tokens.npz, of the training in OUT/calibration.npz.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch
from optimum.exporters.onnx import onnx_export_from_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 2048
LENGTH, BATCH = 64, 16
MOST_CHARACTERS = 8_000_000
TEST_TEXTS, CALIBRATION_TEXTS = 256, 64
LEARNING_RATE = 3e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pattern", default="**/*.py", help="files below TEXTS")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tied", action="store_true", help="the LM head has the weights of the embedding")
    options = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    texts = read_texts(options.texts, options.pattern)
    held_out = len(texts) // 20
    tokenizer = new_tokenizer(texts[held_out:])
    training = token_ids(tokenizer, texts[held_out:])
    model = train(new_model(options.hidden, options.layers, tied=options.tied), training, 60 * options.minutes)
    onnx_export_from_model(model, options.out, task="text-generation-with-past")
    np.savez(options.out / "tokens.npz", input_ids=spread(token_ids(tokenizer, texts[:held_out]), TEST_TEXTS))
    np.savez(options.out / "calibration.npz", input_ids=spread(training, CALIBRATION_TEXTS))


def read_texts(folder: Path, pattern: str) -> list[str]:
    """Read files in random order, up to a number of characters."""
    paths = sorted(path for path in folder.glob(pattern) if path.is_file())
    random.shuffle(paths)
    texts: list[str] = []
    total = 0
    for path in paths:
        if total > MOST_CHARACTERS:
            break
        texts.append(path.read_text(encoding="utf-8", errors="ignore"))
        total += len(texts[-1])
    return texts


def new_tokenizer(texts: list[str]) -> Tokenizer:
    """Train a tokenizer (byte-level BPE)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<end>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def token_ids(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """Join the ids of all texts, each with an end mark."""
    return np.concatenate([np.array([*encoding.ids, 0]) for encoding in tokenizer.encode_batch(texts)])


def spread(ids: np.ndarray, count: int) -> np.ndarray:
    """Cut texts of one length from everywhere: (count, LENGTH)."""
    starts = np.linspace(0, len(ids) - LENGTH, count).astype(int)
    return np.stack([ids[start : start + LENGTH] for start in starts])


def new_model(hidden: int, layers: int, *, tied: bool) -> LlamaForCausalLM:
    """Make a Llama with two query heads for each head of keys and values."""
    heads = hidden // 32
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=int(2.7 * hidden) // 32 * 32,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def train(model: LlamaForCausalLM, ids: np.ndarray, seconds: float) -> LlamaForCausalLM:
    """Train for a time; the learning rate falls to a tenth."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    rng = np.random.default_rng(0)
    model.train()
    began = time.monotonic()
    share, step = 0.0, 0
    while share < 1:
        starts = rng.integers(0, len(ids) - LENGTH, BATCH)
        batch = torch.tensor(np.stack([ids[start : start + LENGTH] for start in starts]))
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, (step + 1) / 50) * max(0.1, 1 - share)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: perplexity {loss.detach().exp():.0f}", flush=True)
        share, step = (time.monotonic() - began) / seconds, step + 1
    return model.eval()


if __name__ == "__main__":
    main()
