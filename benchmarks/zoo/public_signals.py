"""Make folders for run.py and by_hand.py of models of sounds, text images and files that come inside packages.

    pip download --no-deps -d packages speechmos silero-vad onnx-asr ddddocr rapidocr magika
    python benchmarks/zoo/public_signals.py packages zoo

The features are computed as the packages compute them. Sounds are synthetic speech with noise, lost packets and echo;
images are drawn text; files are those of Python's installation. The evaluation data come from other seeds,
or other files, than the calibration data. There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import re
import string
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont
from public import SAMPLE_RATE, Arrays, members, speech, text_items, voice_items

LETTERS = 100
ARABIC = '_ #!"()-./:[]«»،؛؟ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىي'
HEBREW = "_HO5 !\"'(),-.:;?אבגדהוזחטיךכלםמןנסעףפץצקרשת"
Generator = np.random.Generator
Items = Callable[[Path, int, int], Arrays]
"""Makes a number of items for a model with a seed."""


@dataclass(frozen=True)
class Source:
    """A model file in a package, and its data."""

    file: str
    items: Items
    evaluation: int = 60
    calibration: int = 30


def noisy_speech(random: Generator, seconds: float) -> np.ndarray:
    """Speech in noise of 0 to 40 dB below it, at some level: float32 at 16 kHz, within -1 and 1."""
    clean = speech(seconds, int(random.integers(1 << 31)))[: int(seconds * SAMPLE_RATE)]
    noise = np.convolve(random.normal(size=len(clean)), random.normal(size=int(random.integers(1, 40))), "same")
    noise *= clean.std() / noise.std() * 10 ** (-random.uniform(0, 40) / 20)
    mixed = (clean + noise) * random.uniform(0.2, 1)
    return np.clip(mixed / max(1, np.abs(mixed).max()), -1, 1).astype(np.float32)


def mel_filters(rate: int, size: int, count: int) -> np.ndarray:
    """Triangular filters on the mel scale: [count, size // 2 + 1]."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), count + 2) / 2595) - 1)
    frequencies = np.fft.rfftfreq(size, 1 / rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])[:, None]


def spectrum(sound: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Powers of the short-time spectrum: [frames, size // 2 + 1]."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(sound, size // 2), size)[::hop]
    return np.abs(np.fft.rfft(frames * np.hanning(size))) ** 2


def mel_decibels(sound: np.ndarray, rate: int, size: int, hop: int, count: int) -> np.ndarray:
    """Powers of mel bands, 0 to 80 dB below the highest, as -1 to 1: [frames, count]."""
    bands = spectrum(sound, size, hop) @ mel_filters(rate, size, count).T
    levels = 10 * np.log10(np.maximum(bands, 1e-10) / bands.max())
    return ((np.maximum(levels, -80) + 40) / 40).astype(np.float32)


def dnsmos_items(model: Path, seed: int, count: int) -> Arrays:
    """Clips of 9.01 s."""
    random = np.random.default_rng(seed)
    return {"input_1": np.stack([noisy_speech(random, 9.01) for _ in range(count)])}


def p808_items(model: Path, seed: int, count: int) -> Arrays:
    """Mel spectra of such clips: [900, 120]."""
    clips = dnsmos_items(model, seed, count)["input_1"]
    return {"input_1": np.stack([mel_decibels(clip[:-160], SAMPLE_RATE, 321, 160, 120)[:900] for clip in clips])}


def plcmos_items(model: Path, seed: int, count: int) -> Arrays:
    """Logarithms of the powers of clips of 4 s with lost packets, and the embedding of a rater."""
    random = np.random.default_rng(seed)
    spectra = []
    for _ in range(count):
        clip = noisy_speech(random, 4).reshape(-1, 320)
        clip[random.random(len(clip)) < random.uniform(0, 0.3)] = 0
        spectra.append(np.log(np.maximum(spectrum(clip.ravel(), 512, 256), 1e-12))[None] / 20)
    raters = random.normal(size=(count, 64)).astype(np.float32)
    return {"degraded_audio": np.stack(spectra).astype(np.float32), "rater_embed": raters}


def aecmos_items(model: Path, seed: int, count: int) -> Arrays:
    """Mel spectra of 5 s at the far end, at the microphone with echo, and after its cancellation; double talk."""
    random = np.random.default_rng(seed)
    spectra = []
    for _ in range(count):
        far, near = noisy_speech(random, 5), noisy_speech(random, 5)
        echo = np.roll(far, int(random.integers(100, 2000))) * random.uniform(0.1, 0.6)
        channels = []
        for sound in (far, near + echo, near + echo * random.uniform(0, 0.5)):
            fine = np.interp(np.arange(0, len(sound), 1 / 3), np.arange(len(sound)), sound)
            mels = mel_decibels(fine, 3 * SAMPLE_RATE, 1537, 768, 160)
            channels.append(np.concatenate([mels, np.ones((20, 160)), np.zeros((20, 160))]))
        spectra.append(np.stack(channels))
    return {"input": np.stack(spectra).astype(np.float32), "h0": np.zeros((count, 4, 1, 96), np.float32)}


def waveform_items(model: Path, seed: int, count: int) -> Arrays:
    """Clips of 3 s with their length."""
    random = np.random.default_rng(seed)
    clips = np.stack([noisy_speech(random, 3) for _ in range(count)])
    return {"waveforms": clips, "waveforms_lens": np.full(count, clips.shape[1], np.int64)}


def sequence_items(model: Path, seed: int, count: int) -> Arrays:
    """One second each in 31 pieces with context, and the state that the model reached before."""
    session = onnxruntime.InferenceSession(model)
    sound = speech(count + 1, seed)
    states = [np.zeros((1, 1, 128), np.float32)] * 2
    pieces, reached = [], []
    for start in range(0, count * 31 * 512, 31 * 512):
        windows = np.lib.stride_tricks.sliding_window_view(sound[start : start + 31 * 512 + 64], 576)[::512]
        pieces.append(windows)
        reached.append(states)
        states = session.run(None, {"input": windows, "h": states[0], "c": states[1]})[1:]
    arrays = {"input": np.stack(pieces)}
    arrays |= {name: np.stack([state[place] for state in reached]) for place, name in enumerate("hc")}
    return arrays


def captcha_items(model: Path, seed: int, count: int) -> Arrays:
    """Grey images of four to six letters with lines across, 64 by 192."""
    random = np.random.default_rng(seed)
    images = []
    for _ in range(count):
        image = Image.new("L", (192, 64), int(random.integers(180, 256)))
        draw = ImageDraw.Draw(image)
        letters = random.choice(list(string.ascii_letters + string.digits), int(random.integers(4, 7)))
        for place, letter in enumerate(letters):
            font = ImageFont.load_default(size=float(random.integers(30, 48)))
            left = 8 + place * 176 // len(letters)
            draw.text((left, int(random.integers(2, 16))), letter, fill=int(random.integers(0, 120)), font=font)
        for _ in range(int(random.integers(1, 4))):
            ends = random.integers(0, (192, 64, 192, 64)).tolist()
            draw.line(ends, fill=int(random.integers(60, 160)), width=1)
        images.append(np.asarray(image, np.float32)[None] / 255)
    return {"input1": np.stack(images)}


def line_items(model: Path, seed: int, count: int) -> Arrays:
    """Lines of text, 48 by 320."""
    return text_items(model, (48, 320), seed, count)


def file_items(model: Path, seed: int, count: int) -> Arrays:
    """The first and the last 1024 bytes of files, padded with 256."""
    files = sorted(path for path in Path(sysconfig.get_path("stdlib")).rglob("*.*") if path.is_file())
    random = np.random.default_rng(0)
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        by_kind.setdefault(path.suffix, []).append(path)
    chosen: list[Path] = []
    while len(chosen) < 1000 and by_kind:
        for kind in sorted(by_kind):
            chosen.append(by_kind[kind].pop(int(random.integers(len(by_kind[kind])))))
            if not by_kind[kind]:
                del by_kind[kind]
    rows = []
    for path in chosen[seed % 2 :: 2][:count]:
        content = path.read_bytes()
        begin = np.frombuffer(content[:4096].lstrip()[:1024], np.uint8)
        end = np.frombuffer(content[-4096:].rstrip()[-1024:], np.uint8)
        row = np.full(2048, 256, np.int32)
        row[: len(begin)] = begin
        row[2048 - len(end) :] = end
        rows.append(row)
    return {"bytes": np.stack(rows)}


def turn_items(model: Path, seed: int, count: int) -> Arrays:
    """Mel spectra of 8 s of speech as Whisper takes them, 80 by 800; silence precedes shorter clips."""
    random = np.random.default_rng(seed)
    spectra = []
    for _ in range(count):
        clip = noisy_speech(random, random.uniform(1, 8))
        padded = np.concatenate([np.zeros(8 * SAMPLE_RATE - len(clip)), clip])
        bands = spectrum(padded, 400, 160)[:-1] @ mel_filters(SAMPLE_RATE, 400, 80).T
        levels = np.log10(np.maximum(bands, 1e-10))
        spectra.append((np.maximum(levels, levels.max() - 8).T + 4) / 4)
    return {"input_features": np.stack(spectra).astype(np.float32)}


def pitch_items(model: Path, seed: int, count: int) -> Arrays:
    """Clips of 2 s, and the range of the pitch."""
    random = np.random.default_rng(seed)
    clips = np.stack([noisy_speech(random, 2) for _ in range(count)])
    return {"audio": clips, "fmin": np.float32(46.875), "fmax": np.float32(2093.75)}


def arabic_items(model: Path, seed: int, count: int) -> Arrays:
    """Texts of 100 letters without diacritics."""
    return letter_items("ar", ARABIC, seed, count)


def hebrew_items(model: Path, seed: int, count: int) -> Arrays:
    """The same in Hebrew, as floats."""
    return {"input_1": letter_items("he", HEBREW, seed, count)["char_inputs"].astype(np.float32)}


def letter_items(language: str, letters: str, seed: int, count: int) -> Arrays:
    """Numbers of the letters of Django's translated messages, without hints at diacritics."""
    import django

    random = np.random.default_rng(seed)
    lines: list[str] = []
    for file in sorted(Path(django.__file__).parent.rglob(f"locale/{language}/LC_MESSAGES/*.po")):
        messages = re.findall(r'^msgstr(?:\[\d\])? "(.+)"', file.read_text(encoding="utf-8"), re.MULTILINE)
        lines += ["".join(letter for letter in message if letter in letters).strip() for message in messages]
    text = " ".join(lines[seed % 2 :: 2])
    starts = random.integers(0, len(text) - LETTERS, count)
    ids = np.stack([[letters.index(letter) for letter in text[start : start + LETTERS]] for start in starts])
    lengths = np.full(count, LETTERS)
    return {"char_inputs": ids, "diac_inputs": np.ones_like(ids), "input_lengths": lengths}


MODELS = {
    "dnsmos": Source("sig_bak_ovr.onnx", dnsmos_items),
    "dnsmos_p808": Source("model_v8.onnx", p808_items),
    "plcmos": Source("plcmos_v2.onnx", plcmos_items),
    "aecmos": Source("Run_1668423760_Stage_0.onnx", aecmos_items),
    "silero_half": Source("silero_vad_half.onnx", voice_items, 400, 100),
    "silero_sequence": Source("silero_vad_16k_sequence.onnx", sequence_items),
    "whisper_mel": Source("whisper80.onnx", waveform_items),
    "nemo_mel": Source("nemo128_conv.onnx", waveform_items),
    "captcha": Source("common.onnx", captcha_items, 100, 50),
    "captcha_old": Source("common_old.onnx", captcha_items, 100, 50),
    "ocr_recognition_v6": Source("PP-OCRv6_rec_small.onnx", line_items),
    "smart_turn": Source("smart-turn-v3.2-cpu.onnx", turn_items),
    "swift_f0": Source("swift_f0/model.onnx", pitch_items),
    "tashkeel": Source("tashkeel/model.onnx", arabic_items),
    "nakdimon": Source("nakdimon.onnx", hebrew_items),
    "magika": Source("standard_v3_3/model.onnx", file_items, 200, 60),
}


def main() -> None:
    """Write the folders of the models in the packages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    options = parser.parse_args()
    files = list(members(options.packages))
    for name in options.models or MODELS:
        source = MODELS[name]
        found = [(member, archive) for member, archive in files if f"/{member}".endswith(f"/{source.file}")]
        if not found:
            continue
        folder = options.zoo / name
        folder.mkdir(parents=True, exist_ok=True)
        member, archive = found[0]
        model = folder / "model.onnx"
        model.write_bytes(archive.read(member))
        np.savez_compressed(folder / "evaluation.npz", **source.items(model, 1, source.evaluation))
        np.savez_compressed(folder / "calibration.npz", **source.items(model, 2, source.calibration))
        print(folder)


if __name__ == "__main__":
    main()
