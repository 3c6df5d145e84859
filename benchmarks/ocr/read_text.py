"""A pipeline of three models: find the lines of text in a picture, turn those that are upside down, read each.

pip download --no-deps rapidocr_onnxruntime==1.4.4 && unzip rapidocr_onnxruntime-*.whl
python make_pictures.py
autoopt run dag.yaml
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

Feed = dict[str, np.ndarray]
LINES, HEIGHT, WIDTH = 4, 48, 320
TURNED_WIDTH = 192
"""Columns of a line that tell if it is upside down."""
MEAN = np.array([0.485, 0.456, 0.406], np.float32).reshape(3, 1, 1)
DEVIATION = np.array([0.229, 0.224, 0.225], np.float32).reshape(3, 1, 1)
TEXT = 0.3
"""Probability from which a pixel belongs to text."""
UPSIDE_DOWN = 0.9
"""Probability from which a line is turned."""


def read_text(models: Mapping[str, Callable[[Feed], Feed]], inputs: Feed) -> Feed:
    """The scores of the characters in the four highest lines: (1, lines, steps, characters)."""
    picture = inputs["x"]
    (probabilities,) = models["detection"]({"x": picture}).values()
    plain = picture[0] * DEVIATION + MEAN
    scores = []
    for box in lines(probabilities[0, 0] > TEXT):
        line = cut(plain, box)
        (direction,) = models["direction"]({"x": line[..., :TURNED_WIDTH]}).values()
        if direction[0, 1] > UPSIDE_DOWN:
            line = line[:, :, ::-1, ::-1]
        (line_scores,) = models["recognition"]({"x": np.ascontiguousarray(line)}).values()
        scores.append(line_scores)
    return {"scores": np.concatenate(scores)[None]}


def lines(is_text: np.ndarray) -> list[tuple[slice, slice]]:
    """The boxes of the highest lines, filled up with the whole picture."""
    boxes = []
    for rows in runs(is_text.any(axis=1)):
        columns = np.flatnonzero(is_text[rows].any(axis=0))
        boxes.append((rows, slice(columns[0], columns[-1] + 1)))
    boxes.sort(key=lambda box: box[0].start - box[0].stop)
    everything = (slice(0, is_text.shape[0]), slice(0, is_text.shape[1]))
    return (boxes + [everything] * LINES)[:LINES]


def runs(flags: np.ndarray) -> Iterator[slice]:
    """The ranges of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    for start, stop in edges.reshape(-1, 2):
        yield slice(start, stop)


def cut(picture: np.ndarray, box: tuple[slice, slice]) -> np.ndarray:
    """A box of a picture (3, rows, columns) as the reader takes it: 48 rows, the width in proportion, up to 320."""
    part = picture[:, box[0], box[1]]
    rows, columns = part.shape[1:]
    width = min(WIDTH, max(1, round(columns * HEIGHT / rows)))
    across = np.arange(width) * columns // width
    down = np.arange(HEIGHT) * rows // HEIGHT
    line = np.zeros((1, 3, HEIGHT, WIDTH), np.float32)
    line[0, :, :, :width] = (part[:, down][:, :, across] - 0.5) / 0.5
    return line
