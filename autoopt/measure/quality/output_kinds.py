"""The meaning of a model's outputs, inferred from roles, shapes and values: classes, boxes, keypoints, values, ..."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np

from autoopt.data.boxes import Boxes, square_grid, ssd_boxes, yolo_boxes, yolox_boxes
from autoopt.data.scores import Dimension, class_axis
from autoopt.errors import InputError
from autoopt.measure.quality.detection import boxes_of
from autoopt.model.roles import Role
from autoopt.tuning import KINDS

Kind: TypeAlias = Literal[
    "ids", "classes", "sequence", "boxes", "keypoints", "events", "embedding", "token_embedding", "values"
]
Outputs: TypeAlias = Sequence[Sequence[object]]
"""The outputs of a model: for each output, its value for each item."""
Decode: TypeAlias = Callable[[Outputs, int], Boxes]
"""Reads the boxes of one item from the outputs of a detector."""

RAW_BOXES: Final = {"min_score": KINDS.lowest_score, "max_overlap": 0.5}


@dataclass(frozen=True)
class Part:
    """One output, or the outputs of a detector together, and their kind."""

    outputs: tuple[int, ...]
    """Indices of the outputs."""
    kind: Kind
    axis: int | None = None
    """The class axis of `classes` and `sequence`."""
    blank: int = 0
    """The blank of `sequence`."""
    decode: Decode | None = None
    """Reads `boxes`."""
    masks: tuple[np.ndarray, ...] = ()
    """For each item, which tokens of a `token_embedding` count: (tokens) booleans."""
    is_state: bool = False
    """True for recurrent state."""


def parts_of(
    outputs: Outputs,
    roles: Sequence[Role],
    shapes: Sequence[Sequence[Dimension] | None],
    states: Collection[int] = (),
    masks: Sequence[np.ndarray] = (),
) -> list[Part]:
    """Recognize the kinds of the outputs of the source model.

    Args:
        outputs: for each output, its value for each item.
        roles: the outputs' roles.
        shapes: their shapes in the model.
        states: indices of the outputs that are recurrent state; they decide nothing by themselves.
        masks: for each item, the attention mask that the model gets; empty if it takes none.
    """
    parts: list[Part] = []
    detector = _detector(outputs)
    if detector is not None:
        parts.append(detector)
    for index, values in enumerate(outputs):
        if index in states:
            parts.append(Part((index,), "values", is_state=True))
        elif roles[index].kind == "token vectors" and _are_token_vectors(values, masks):
            token_masks = tuple(mask.reshape(-1) != 0 for mask in masks)
            parts.append(Part((index,), "token_embedding", masks=token_masks))
        elif detector is None or index not in detector.outputs:
            parts.append(_part(index, list(map(np.asarray, values)), roles[index], shapes[index], masks))
    return parts


def _part(
    index: int,
    items: Sequence[np.ndarray],
    role: Role,
    shape: Sequence[Dimension] | None,
    masks: Sequence[np.ndarray],
) -> Part:
    if any(item.dtype.kind != "f" for item in items):
        return Part((index,), "ids")
    if role.kind == "keypoints" and _point_size(items) is not None:
        return Part((index,), "keypoints")
    axis = class_axis(items, shape)
    if _are_embeddings(items, role, are_logits=axis is not None):
        return Part((index,), "embedding")
    if axis is not None:
        blank = None if _are_of_tokens(items, axis, masks) else _blank(items, axis)
        if blank is None:
            return Part((index,), "classes", axis)
        return Part((index,), "sequence", axis, blank)
    kind: Kind = "values"
    if _are_events(items):
        kind = "events"
    elif _are_unit_vectors(items):
        kind = "embedding"
    elif _are_coordinates(items):
        kind = "keypoints"
    return Part((index,), kind)


def _blank(items: Sequence[np.ndarray], axis: int) -> int | None:
    """Return the blank of CTC: the first or last class, if it is the best one in many steps; else None."""
    if sum(size > 1 for size in items[0].shape) != 2 or items[0].shape[axis] < KINDS.fewest_symbols:
        return None
    paths = [item.argmax(axis=axis).ravel() for item in items]
    best = np.concatenate(paths)
    last = items[0].shape[axis] - 1
    shares = {blank: float(np.mean(best == blank)) for blank in (0, last)}
    blank = max(shares, key=shares.__getitem__)
    is_constant = bool(np.all(best == best[0]))
    if shares[blank] < KINDS.blank_share or is_constant or not _are_spikes(paths, blank):
        return None
    return blank


def _are_spikes(paths: Sequence[np.ndarray], blank: int) -> bool:
    """True if most runs of one symbol have a blank before or behind them; `paths` are the best classes, (steps)."""
    symbols, apart = 0, 0
    for path in paths:
        ids = path[np.flatnonzero(np.diff(path, prepend=-1))]  # one for each run
        padded = np.concatenate([[-1], ids, [-1]])
        has_blank = (padded[:-2] == blank) | (padded[2:] == blank)
        symbols += int(np.sum(ids != blank))
        apart += int(np.sum(has_blank & (ids != blank)))
    return apart >= KINDS.least_apart * symbols


def _are_of_tokens(items: Sequence[np.ndarray], axis: int, masks: Sequence[np.ndarray]) -> bool:
    """True for a row of scores for each token of a text, as those of named entities."""
    if not masks:
        return False
    return all(item.size == item.shape[axis] * mask.size for item, mask in zip(items, masks, strict=True))


def _are_events(items: Sequence[np.ndarray]) -> bool:
    """True for probabilities that each decide on their own: of a binary class, of speech in a frame, of notes."""
    values = _joined(items)
    if not values.size or not np.all((values >= 0) & (values <= 1)) or not np.any(values >= 0.5):
        return False
    return float(np.mean((values < 0.1) | (values > 0.9))) >= KINDS.decided or items[0].size == 1


def _are_unit_vectors(items: Sequence[np.ndarray]) -> bool:
    if not _are_vectors(items, 8):
        return False
    return bool(np.allclose(list(map(np.linalg.norm, items)), 1, atol=1e-3))


def _are_embeddings(items: Sequence[np.ndarray], role: Role, *, are_logits: bool) -> bool:
    """True for a vector for each item whose role is that of an embedding, or logits of which none stands out."""
    if not _are_vectors(items, KINDS.fewest_features):
        return False
    if role.kind == "embedding":
        return True
    return are_logits and not _have_peaks(items)


def _are_vectors(items: Sequence[np.ndarray], fewest: int) -> bool:
    """True for one vector of at least `fewest` numbers for each of several items, all of one shape."""
    if len(items) < 2 or items[0].size < fewest or len({item.shape for item in items}) > 1:
        return False
    return bool(sum(size > 1 for size in items[0].shape) == 1)


def _have_peaks(vectors: Sequence[np.ndarray]) -> bool:
    """True for scores of many classes: all of one sign, or the highest stands out more than the lowest."""
    values = np.stack([vector.ravel() for vector in vectors]).astype(np.float64)
    if values.min() >= 0 or values.max() <= 0:
        return True
    means = values.mean(axis=1)
    above, below = values.max(axis=1) - means, means - values.min(axis=1)
    return float(above.mean()) >= KINDS.least_peak * float(below.mean())


def _are_token_vectors(items: Sequence[object], masks: Sequence[np.ndarray]) -> bool:
    """True for one vector for each token of a text encoder, which retrieval pools to one vector."""
    if not masks:
        return False
    for item, mask in zip(items, masks, strict=True):
        shape = np.asarray(item).shape
        if len(shape) != 3 or shape[:2] != (1, mask.size) or shape[2] < KINDS.fewest_features:
            return False
    return True


def _are_coordinates(items: Sequence[np.ndarray]) -> bool:
    size = _point_size(items)
    if size is None or items[0].shape[-1] != size:
        return False
    values = _joined(items)
    return float(np.mean(values >= 0)) >= KINDS.positive_coordinates and float(np.ptp(values)) > 0


def _point_size(items: Sequence[np.ndarray]) -> int | None:
    """Return the numbers of each point, 2 or 3, if an item may be a list of points; else None."""
    shapes = {item.shape for item in items}
    if len(shapes) != 1:
        return None
    sizes: list[int] = [size for size in shapes.pop() if size > 1]
    match sizes:
        case [points, (2 | 3) as size] if points >= KINDS.fewest_points:
            return size
        case [numbers] if numbers >= 2 * KINDS.fewest_points and numbers % 3 == 0:
            return 3
        case [numbers] if numbers >= 2 * KINDS.fewest_points and numbers % 2 == 0:
            return 2
    return None


def points_of(item: np.ndarray) -> np.ndarray:
    """Return the keypoints of an item as (points, 2): x and y, without a third number (depth or score)."""
    size = _point_size([item])
    if size is None:
        return item.reshape(-1, 1)
    return item.reshape(-1, size)[:, :2]


def _joined(items: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([item.ravel() for item in items])


def _detector(outputs: Outputs) -> Part | None:
    """Find a reading of the outputs as boxes under which the source model detects something."""
    for indices, decode in _readings(outputs):
        try:
            boxes = [decode(outputs, item) for item in range(len(outputs[0]))]
        except (InputError, ValueError, IndexError):
            continue
        if any(np.any(image.scores >= KINDS.lowest_score) for image in boxes):
            return Part(tuple(indices), "boxes", decode=decode)
    return None


def _readings(outputs: Outputs) -> Iterator[tuple[Sequence[int], Decode]]:
    """Yield the ways to read the outputs as boxes that fit their shapes and values."""
    firsts = [np.asarray(values[0]) for values in outputs]
    for index, first in enumerate(firsts):
        items = list(map(np.asarray, outputs[index]))
        if _are_box_rows(items):
            yield (index,), partial(_decoded, indices=(index,))
        elif (decoder := _decoder_of(items)) is not None:
            yield (index,), partial(_raw, decoder=partial(decoder, nms=RAW_BOXES), indices=(index,))
        elif first.dtype.kind == "f" and first.shape[-1:] == (4,) and first.size > 4:
            # The raw boxes of a detector are as many for every image; the steps of a decoder are not.
            is_raw = all(item.shape == first.shape for item in items)
            yield from _separate_readings(firsts, index, is_raw=is_raw)


def _separate_readings(
    firsts: Sequence[np.ndarray], boxes: int, *, is_raw: bool
) -> Iterator[tuple[Sequence[int], Decode]]:
    """Yield the ways to read an output of boxes with others of scores and classes."""
    count = firsts[boxes].size // 4
    others = [index for index in range(len(firsts)) if index != boxes]
    singles = [index for index in others if firsts[index].size == count]
    if len(singles) >= 2:
        yield (boxes, *singles), partial(_decoded, indices=(boxes, *singles))
    if not is_raw or count < KINDS.fewest_candidates:
        return
    for index in others:
        if _are_class_scores(firsts[index], count):
            decoder = partial(ssd_boxes, nms=RAW_BOXES)
            yield (boxes, index), partial(_raw, decoder=decoder, indices=(boxes, index))


def _are_class_scores(output: np.ndarray, count: int) -> bool:
    """True for probabilities of classes, one row for each of `count` boxes."""
    if output.dtype.kind != "f" or output.ndim < 2 or output.shape[-2] != count:
        return False
    return bool(output.min() >= 0 and output.max() <= 1)


def _are_box_rows(items: Sequence[np.ndarray]) -> bool:
    """True for rows of x1, y1, x2, y2, score, class."""
    if any(item.dtype.kind != "f" or item.shape[-1:] != (6,) for item in items):
        return False
    rows = np.concatenate([item.reshape(-1, 6) for item in items])
    has_scores = np.all((rows[:, 4] >= 0) & (rows[:, 4] <= 1))
    return bool(len(rows) and has_scores and np.all(rows[:, 5] == np.round(rows[:, 5])))


def _decoder_of(items: Sequence[np.ndarray]) -> Callable[..., Mapping[str, np.ndarray]] | None:
    """The decoder of tables with a row for each raw box, four coordinates and then scores; None for other outputs.

    The coordinates of YOLO are pixels. Those of YOLOX are places in the cells of a grid and logarithms of sizes.
    """
    tables = _tables(items)
    if not tables or tables[0].shape[1] < 5:
        return None
    table, shape = np.concatenate(tables), items[0].shape
    if table[:, 4:].min() < 0 or table[:, 4:].max() > 1:
        return None
    is_size = table[:, 2:4].min() >= 0
    if is_size and len(tables[0]) >= KINDS.fewest_candidates and table[:, :4].max() > KINDS.largest_coordinate:
        return yolo_boxes
    is_grid = shape[-1] >= 6 and square_grid(shape[-2]) is not None
    return yolox_boxes if is_grid and not is_size else None


def _tables(items: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Items of one shape as tables of floats with more rows than columns; none if they do not have that form."""
    shape = items[0].shape
    if len(shape) < 2 or shape[-2] == shape[-1] or items[0].size != shape[-2] * shape[-1]:
        return []
    if any(item.dtype.kind != "f" or item.shape != shape for item in items):
        return []
    tables = [item.reshape(shape[-2:]) for item in items]
    if shape[-2] < shape[-1]:
        return [table.T for table in tables]
    return tables


def _decoded(outputs: Outputs, item: int, indices: Sequence[int]) -> Boxes:
    """Read boxes that the model has decoded itself."""
    return boxes_of([[outputs[index][item]] for index in indices], 0)


def _raw(
    outputs: Outputs, item: int, decoder: Callable[..., Mapping[str, np.ndarray]], indices: Sequence[int]
) -> Boxes:
    """Read raw boxes with a decoder of `autoopt.data.boxes`."""
    prediction = decoder([np.asarray(outputs[index][item]) for index in indices])
    return Boxes(prediction["boxes"], prediction["scores"], prediction["labels"])
