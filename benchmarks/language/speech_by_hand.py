"""Word error rate and speed of encoder-decoders of speech with onnxruntime alone, without autoopt: does a result hold?

    python benchmarks/language/speech_by_hand.py OUT/speech.npz OUT/models out

For each folder (Optimum's, or what `autoopt run` wrote): word error rate of the texts that it generates; CPU time of a
text with one thread, as the median of the ratios to the first folder (95 % interval of the median); how many texts are
the first folder's. The folders take turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
from by_hand import ratio
from read_speech import read_speech

FILES = {"encoder": "encoder_model.onnx", "prompt": "decoder_model.onnx", "decoder": "decoder_with_past_model.onnx"}
Outputs = dict[str, np.ndarray]


class Folder:
    """The models of a folder, and its words and CPU times so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        is_exported = (path / FILES["encoder"]).is_file()
        self.models = {
            part: open_model(path / (file if is_exported else f"{part}/model.onnx")) for part, file in FILES.items()
        }
        self.words: list[list[int]] = []
        self.seconds: list[float] = []

    def read(self, spectrum: np.ndarray) -> None:
        began = time.process_time()
        words = read_speech(self.models, {"input_features": spectrum})["words"]
        self.seconds.append(time.process_time() - began)
        self.words.append(without_padding(words))


def open_model(path: Path) -> Callable[[Outputs], Outputs]:
    """Return a function from inputs to outputs by name, which leaves out what the model does not take."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]

    def run(inputs: Outputs) -> Outputs:
        feed = {name: value for name, value in inputs.items() if name in taken}
        return dict(zip(names, session.run(None, feed), strict=True))

    return run


def without_padding(words: np.ndarray) -> list[int]:
    return [int(word) for word in words.ravel() if word >= 0]


def edits(predicted: list[int], truth: list[int]) -> int:
    """Compute the Levenshtein distance."""
    row = list(range(len(truth) + 1))
    for i, word in enumerate(predicted, 1):
        above, row = row, [i]
        for j, true_word in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (word != true_word)))
    return row[-1]


def main() -> None:
    with np.load(sys.argv[1]) as arrays:
        spectra, truths = arrays["input_features"], [without_padding(label) for label in arrays["labels"]]
    folders = [Folder(Path(name)) for name in sys.argv[2:]]
    for spectrum in spectra:
        for folder in folders:
            folder.read(spectrum[None])
    source = folders[0]
    for folder in folders:
        wrong = sum(edits(words, truth) for words, truth in zip(folder.words, truths, strict=True))
        total = sum(map(len, truths))
        same = sum(words == others for words, others in zip(folder.words, source.words, strict=True))
        print(f"{folder.path}: word error rate {100 * wrong / total:.2f} % of {total} words")
        print(f"  {1e3 * np.median(folder.seconds):.2f} ms of CPU time {ratio(folder.seconds, source.seconds)}")
        print(f"  the same words as the first for {same} of {len(truths)}")


if __name__ == "__main__":
    main()
