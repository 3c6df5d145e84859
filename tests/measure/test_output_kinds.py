"""The kinds of outputs, told from names, shapes and values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest

from autoopt.data.scores import Dimension
from autoopt.measure.quality.output_kinds import Outputs, Part, parts_of, points_of
from autoopt.model.roles import output_role

RNG = np.random.default_rng(0)
START = RNG.bit_generator.state
ITEMS = 12


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Give each test the same random numbers, whatever ran before it in this process."""
    RNG.bit_generator.state = START


def recognized(
    outputs: Outputs,
    names: Sequence[str],
    shapes: Sequence[Sequence[Dimension] | None],
    states: Collection[int] = (),
    masks: Sequence[np.ndarray] = (),
) -> list[Part]:
    """The kinds of outputs of which only the names tell roles."""
    return parts_of(outputs, list(map(output_role, names)), shapes, states, masks)


def softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def ctc_path() -> np.ndarray:
    path = np.zeros(20, int)
    path[[3, 4, 9, 15]] = RNG.integers(1, 6, 4)
    return np.eye(6)[path] * 8 - 4


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def yolo() -> np.ndarray:
    table = np.zeros((40, 6))
    table[:, :4] = RNG.uniform(10, 60, (40, 4))
    table[3, 4] = 0.9
    return table.T[None]


def yolox() -> np.ndarray:
    table = np.zeros((21, 7))
    table[:, :4] = RNG.normal(size=(21, 4))
    table[7, 4:] = 0.9, 0.8, 0.1
    return table[None]


def rows() -> np.ndarray:
    return np.array([[1, 2, 30, 40, 0.9, 2], [5, 5, 20, 20, 0.4, 0]], float)


EXAMPLES = {
    "ids": lambda: np.array([RNG.integers(0, 5)]),
    "text": lambda: np.array(["a"], object),
    "probabilities": lambda: softmax(RNG.normal(0, 3, (1, 10))),
    "logits": lambda: RNG.normal(0, 6, (1, 10)),
    "token scores": lambda: RNG.normal(0, 6, (1, 30, 9)),
    "ctc": ctc_path,
    "ctc, classes first": lambda: ctc_path().T[None],
    "speech": lambda: np.repeat(RNG.integers(0, 2, 10), 5) * 0.96 + 0.02,
    "one probability": lambda: RNG.uniform(0, 1, (1, 1)),
    "embedding": lambda: unit(RNG.normal(size=(1, 64))),
    "image": lambda: RNG.uniform(0, 1, (1, 1, 12, 12)),
    "number": lambda: RNG.uniform(20, 300, (1, 1)),
    "landmarks": lambda: RNG.uniform(0, 200, (1, 17, 3)),
    "yolo": yolo,
    "yolox": yolox,
    "box rows": rows,
}
KINDS = {
    "ids": "ids",
    "text": "ids",
    "probabilities": "classes",
    "logits": "classes",
    "token scores": "classes",
    "ctc": "sequence",
    "ctc, classes first": "sequence",
    "speech": "events",
    "one probability": "events",
    "embedding": "embedding",
    "image": "values",
    "number": "values",
    "landmarks": "keypoints",
    "yolo": "boxes",
    "yolox": "boxes",
    "box rows": "boxes",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_output_is_taken_for_what_its_values_look_like(name: str) -> None:
    values = [EXAMPLES[name]() for _ in range(ITEMS)]
    (part,) = recognized([values], ["output"], [None])
    assert part.kind == KINDS[name]


def test_steps_of_few_classes_are_decisions_of_their_own() -> None:
    steps = [np.eye(4)[np.where(RNG.random(20) < 0.5, 0, RNG.integers(0, 4, 20))] * 0.96 + 0.01 for _ in range(ITEMS)]
    (part,) = recognized([steps], ["output"], [None])
    assert part.kind == "classes"


def test_states_of_a_voice_that_last_are_no_text() -> None:
    """A voice detector: silence for many steps, then one sound after the other."""

    def steps() -> np.ndarray:
        path = np.concatenate([np.zeros(20, int), np.repeat(RNG.permutation(np.arange(1, 9)), 3)])
        return np.eye(9)[path] * 0.91 + 0.01

    (part,) = recognized([[steps() for _ in range(ITEMS)]], ["logits"], [None])
    assert part.kind == "classes"


@pytest.mark.parametrize(("masked", "kind"), [(True, "classes"), (False, "sequence")])
def test_scores_for_each_token_of_a_text_are_no_ctc(masked: bool, kind: str) -> None:
    values = [ctc_path()[None] for _ in range(ITEMS)]
    masks = [np.ones(20, int) for _ in values] if masked else []
    (part,) = recognized([values], ["logits"], [None], masks=masks)
    assert part.kind == kind


def test_ctc_knows_its_axis_and_blank() -> None:
    (part,) = recognized([[ctc_path().T[None] for _ in range(ITEMS)]], ["output"], [None])
    assert (part.axis, part.blank) == (1, 0)
    (part,) = recognized([[ctc_path()[:, ::-1] for _ in range(ITEMS)]], ["output"], [None])
    assert (part.axis, part.blank) == (1, 5)


def test_a_name_tells_keypoints_in_one_row() -> None:
    values = [RNG.normal(0, 60, (1, 63)) for _ in range(ITEMS)]
    (part,) = recognized([values], ["landmarks_xyz"], [None])
    assert part.kind == "keypoints"
    assert points_of(values[0]).tolist() == values[0].reshape(21, 3)[:, :2].tolist()


@pytest.mark.parametrize(
    ("name", "masked", "kind"),
    [("last_hidden_state", True, "token_embedding"), ("last_hidden_state", False, "values"), ("x", True, "values")],
)
def test_vectors_of_tokens_are_those_of_a_usual_name_with_a_mask(name: str, masked: bool, kind: str) -> None:
    values = [RNG.normal(0, 0.1, (1, 9, 48)) for _ in range(ITEMS)]
    masks = [np.ones(9, int) for _ in values] if masked else []
    (part,) = recognized([values], [name], [None], masks=masks)
    assert part.kind == kind


def scores_of_many_classes() -> np.ndarray:
    scores = RNG.normal(0, 2, (1, 200))
    scores[0, RNG.integers(200)] += 16
    return scores


@pytest.mark.parametrize(
    ("name", "example", "kind"),
    [
        ("output", lambda: RNG.normal(1, 15, (1, 1, 1, 96)), "embedding"),
        ("output", scores_of_many_classes, "classes"),
        ("output", lambda: RNG.normal(0, 0.2, (1, 96)), "values"),
        ("sentence_embedding", lambda: RNG.normal(0, 0.2, (1, 96)), "embedding"),
        ("feats", lambda: RNG.uniform(0, 9, (1, 96)), "embedding"),
        ("features", lambda: RNG.normal(0, 0.2, (1, 8, 6, 6)), "values"),
        ("output", lambda: np.log(softmax(RNG.normal(0, 6, (1, 96)))), "classes"),
    ],
)
def test_an_embedding_is_told_from_scores_of_many_classes_by_its_name_or_its_values(
    name: str, example: Callable[[], np.ndarray], kind: str
) -> None:
    (part,) = recognized([[example() for _ in range(ITEMS)]], [name], [None])
    assert part.kind == kind


@pytest.mark.parametrize("with_classes", [False, True])
def test_outputs_of_a_detector_belong_together(with_classes: bool) -> None:
    boxes = [RNG.uniform(0, 1, (1, 30, 4)) for _ in range(ITEMS)]
    if with_classes:
        others = [[RNG.uniform(0, 1, (1, 30)) for _ in boxes], [RNG.integers(0, 3, (1, 30)) for _ in boxes]]
    else:
        others = [[RNG.uniform(0, 1, (1, 30, 5)) for _ in boxes]]
    mask = [RNG.uniform(0, 1, (1, 1, 8, 8)) for _ in boxes]
    outputs = [mask, boxes, *others]
    detector, other = recognized(outputs, ["m", "a", "b", "c"][: len(outputs)], [None] * len(outputs))
    assert (detector.kind, set(detector.outputs)) == ("boxes", set(range(1, len(outputs))))
    assert (other.kind, other.outputs) == ("values", (0,))


def test_steps_of_a_decoder_are_no_boxes() -> None:
    lengths = [20 + number for number in range(ITEMS)]
    places = [RNG.uniform(0, 1, (1, length, 4)) for length in lengths]
    classes = [RNG.dirichlet(np.full(9, 0.1), (1, length)) for length in lengths]
    kinds = [part.kind for part in recognized([places, classes], ["a", "b"], [None, None])]
    assert "boxes" not in kinds


def test_a_detector_that_finds_nothing_is_compared_by_its_values() -> None:
    silent = [yolo() * np.array([1, 1, 1, 1, 0, 0])[:, None] for _ in range(ITEMS)]
    (part,) = recognized([silent], ["output"], [None])
    assert part.kind == "values"


@pytest.mark.parametrize(
    ("shape", "points"),
    [
        ((1, 17, 3), (17, 2)),
        ((1, 17, 2), (17, 2)),
        ((1, 30), (10, 2)),  # triples before pairs
        ((1, 20), (10, 2)),
        ((1, 11), (11, 1)),  # neither pairs nor triples
        ((1, 8), (8, 1)),  # too few
        ((1, 4, 3), (12, 1)),
        ((1, 17, 4), (68, 1)),
    ],
)
def test_points_are_pairs_or_triples_of_numbers(shape: tuple[int, ...], points: tuple[int, int]) -> None:
    assert points_of(np.zeros(shape)).shape == points
