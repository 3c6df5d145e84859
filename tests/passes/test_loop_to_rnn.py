"""GRU, LSTM and RNN cells in loops, in the forms in which exporters write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops, saved, step
from micro_models import loop_with_carried_weights, made, normal
from onnx import ModelProto
from onnxruntime import InferenceSession

PASS = "loop_to_rnn"
LAYERS = {"GRU", "LSTM", "RNN"}
RESET_AFTER = """xw = MatMul (item, w) xb = Add (xw, b) hu = MatMul (h, u) hb = Add (hu, c)
    xz, xr, xn = Split <axis = -1> (xb, thirds) hz, hr, hn = Split <axis = -1> (hb, thirds)
    sz = Add (xz, hz) z = Sigmoid (sz) sr = Add (xr, hr) r = Sigmoid (sr)
    rh = Mul (r, hn) sn = Add (xn, rh) n = Tanh (sn) """
RESET_BEFORE = """both = Concat <axis = 1> (item, h) g = MatMul (both, k) gb = Add (g, kb) s = Sigmoid (gb)
    r = Slice (s, zero, four, one) z = Slice (s, four, eight, one) rh = Mul (r, h)
    reset = Concat <axis = 1> (item, rh) a = Gemm <transB = 1> (reset, kn, cn) n = Tanh (a) """
KERAS = "kept = Mul (z, h) left = Sub (unit, z) new = Mul (left, n) h_out = Add (kept, new)"
TORCH = "apart = Sub (h, n) some = Mul (z, apart) h_out = Add (n, some)"
SWAPPED = "apart = Sub (n, h) some = Mul (z, apart) h_out = Add (h, some)"
LSTM = """both = Concat <axis = 1> (item, h) g = MatMul (both, m) gb = Add (g, mb)
    a_i, a_j, a_f, a_o = Split <axis = 1> (gb, quarters) a_u = Add (a_f, unit)
    f = Sigmoid (a_u) i = Sigmoid (a_i) j = Tanh (a_j) o = Sigmoid (a_o)
    kept = Mul (f, s) new = Mul (i, j) s_out = Add (kept, new) t = Tanh (s_out) h_out = Mul (t, o)"""
RNN = "xw = MatMul (item, kw) hu = MatMul (h, ku) a = Add (xw, hu) h_out = Tanh (a)"
ONE_ITEM = """x_1 = Unsqueeze (item, zero) h_1 = Unsqueeze (h, zero) s_1 = Unsqueeze (s, zero)
    all_w = Concat <axis = 1> (half_w, half_w) y_1, h_2, s_2 = LSTM <hidden_size = 4> (x_1, all_w, lr, lb, , h_1, s_1)
    h_out = Squeeze (h_2, zero) s_out = Squeeze (s_2, zero)"""
CELLS = {
    "reset after, Keras": (RESET_AFTER + KERAS, "h"),
    "reset after, PyTorch": (RESET_AFTER + TORCH, "h"),
    "reset before": (RESET_BEFORE + KERAS, "h"),
    "reset before, gate of the new state": (RESET_BEFORE + SWAPPED, "h"),
    "LSTM": (LSTM, "hs"),
    "LSTM with the cell first": (LSTM, "sh"),
    "layer for one item": (ONE_ITEM, "hs"),
    "RNN": (RNN, "h"),
}
WEIGHTS = {
    "w": normal(3, 12),
    "b": normal(12),
    "u": normal(4, 12),
    "c": normal(12),
    "thirds": np.array([4, 4, 4]),
    "k": normal(7, 8),
    "kb": normal(8),
    "kn": normal(4, 7),
    "cn": normal(4),
    "unit": np.float32(1),
    "m": normal(7, 16),
    "mb": normal(16),
    "quarters": np.array([4, 4, 4, 4]),
    "kw": normal(3, 4),
    "ku": normal(4, 4),
    "half_w": normal(1, 8, 3),
    "lr": normal(1, 16, 4),
    "lb": normal(1, 32),
    "zero": np.array([0]),
    "one": np.array([1]),
    "four": np.array([4]),
    "eight": np.array([8]),
    "start": normal(1, 4),
    "count": np.int64(5),
    "last": np.int64(4),
    "yes": np.True_,
    "sizes": np.array([2, 4]),
}
TIME_FIRST, BATCH_FIRST, OPEN = "5, 2, 3", "2, 5, 3", "2, N, 3"
FORWARD = "item = Gather <axis = 1> (x, number)"
READERS = {
    "items first": ("item = Gather (x, number)", TIME_FIRST, "count"),
    "batch first": (FORWARD, BATCH_FIRST, "count"),
    "backward": ("back = Sub (last, number) item = Gather <axis = 1> (x, back)", BATCH_FIRST, "count"),
    "kept axis": (
        "at = Unsqueeze (number, zero) kept_item = Gather <axis = 1> (x, at) item = Squeeze (kept_item, one)",
    )
    + (BATCH_FIRST, "count"),
    "cut in the body": (
        "cut = Slice (x, zero, eight, one) item = Gather <axis = 1> (cut, number)",
        BATCH_FIRST,
        "count",
    ),
    "fewer than all": (FORWARD, BATCH_FIRST, "last"),
    "any length": (FORWARD, OPEN, "length"),
}
SCANS = {
    "forward": ("", TIME_FIRST),
    "backward": (", scan_input_directions = [1], scan_output_directions = [1]", TIME_FIRST),
    "batch first": (", scan_input_axes = [1], scan_output_axes = [-2], scan_input_directions = [1]", OPEN),
}


MASKS = {
    "items first": (
        "row = Gather (mask, number) keep = Unsqueeze (row, one)",
        "5, 2",
        "{0}_out = Where (keep, {0}_new, {0})",
    ),
    "batch first": ("keep = Gather <axis = 1> (mask, number)", "2, 5, 1", "{0}_out = Where (keep, {0}_new, {0})"),
    "true where padded": ("row = Gather <axis = 1> (mask, number) pad = Unsqueeze (row, one)", "2, 5")
    + ("{0}_out = Where (pad, {0}, {0}_new)",),
    "as a factor": (
        "row = Gather (mask, number) wide = Unsqueeze (row, one) keep = Cast <to = 1> (wide) drop = Sub (unit, keep)",
        "5, 2",
        "{0}_k = Mul (keep, {0}_new) {0}_d = Mul (drop, {0}) {0}_out = Add ({0}_k, {0}_d)",
    ),
}


def frame(states: str, size: str, nodes: str, mask: str = "") -> ModelProto:
    results = "".join(f", float[r{name}, q{name}] {name}_last" for name in states)
    initial = " ".join(f"{name}_start = Expand (start, sizes)" for name in states)
    mask = f", bool[{mask}] mask" if mask else ""
    text = f"g (float[{size}] x{mask}) => (float[a, b, c] y{results}) {{ {initial} {nodes} }}"
    return made(text, **WEIGHTS)


def values(states: str, text: str) -> str:
    return ", ".join(text.format(name) for name in states)


def loop(cell: str, states: str, reader: str, size: str, trips: str, mask: str = "") -> ModelProto:
    count = "sizes_of_x = Shape (x) length = Gather (sizes_of_x, one)" if trips == "length" else ""
    nodes = f"""{count} {values(states, "{}_last")}, y = Loop ({trips}, yes, {values(states, "{}_start")}) <
        body = body (
        int64 number, bool go, {values(states, "float[2, 4] {}")})
        => (bool on, {values(states, "float[2, 4] {}_out")},
        float[2, 4] each) {{ on = Identity (go) {reader} {cell} each = Identity (h_out) }}>"""
    return frame(states, size, nodes, mask)


def masked(cell: str, states: str, form: str) -> ModelProto:
    reads, size, keeps = MASKS[form]
    changed = cell.replace("_out", "_new") + " " + " ".join(keeps.format(name) for name in states)
    return loop(f"{reads} {changed}", states, *READERS["items first"], size)


def scan(cell: str, states: str, attributes: str, size: str) -> ModelProto:
    nodes = f"""{values(states, "{}_last")}, y = Scan <num_scan_inputs = 1 {attributes}, body = body (
        {values(states, "float[2, 4] {}")}, float[2, 3] item) => ({values(states, "float[2, 4] {}_out")},
        float[2, 4] each) {{ {cell} each = Identity (h_out) }}> ({values(states, "{}_start")}, x)"""
    return frame(states, size, nodes)


def outputs(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(found) for found in session.run(None, feeds)]


def assert_same_with_a_layer(folder: Path, model: ModelProto) -> None:
    result = step(folder, model, PASS)
    assert (result["outcome"], result.get("message", "")) == ("ok", "")
    assert result["equivalence"]["status"] == "same"
    found = set(ops(saved(result)))
    assert found & LAYERS
    assert not found & {"Loop", "Scan"}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_in_a_loop_is_a_layer(cell: str, reader: str, tmp_path: Path) -> None:
    assert_same_with_a_layer(tmp_path, loop(*CELLS[cell], *READERS[reader]))


@pytest.mark.parametrize("attributes", SCANS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_in_a_scan_is_a_layer(cell: str, attributes: str, tmp_path: Path) -> None:
    assert_same_with_a_layer(tmp_path, scan(*CELLS[cell], *SCANS[attributes]))


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("cell", ["reset after, Keras", "reset before", "LSTM", "LSTM with the cell first", "RNN"])
def test_a_mask_keeps_the_states(cell: str, form: str, tmp_path: Path) -> None:
    model = masked(*CELLS[cell], form)
    assert_same_with_a_layer(tmp_path, model)
    data = np.random.default_rng(0)
    x = data.standard_normal((5, 2, 3)).astype(np.float32)
    layer = saved(step(tmp_path, model, PASS))
    for rows in ("11111 11111", "11100 11111", "00111 01010", "00000 10001", "00000 00000"):
        mask = np.array([[bit == "1" for bit in row] for row in rows.split()])
        shape = model.graph.input[1].type.tensor_type.shape.dim
        first = mask.T if shape[0].dim_value == 5 else mask
        feeds = {"x": x, "mask": first.reshape([each.dim_value for each in shape])}
        for found, wanted in zip(outputs(layer, feeds), outputs(model, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", ["5, 1, 1", "5, masks, 1"])
@pytest.mark.parametrize("cell", ["reset before", "LSTM", "RNN"])
def test_a_mask_for_the_whole_batch(cell: str, size: str, tmp_path: Path) -> None:
    content, states = CELLS[cell]
    kept = " ".join(f"{name}_out = Where (keep, {name}_new, {name})" for name in states)
    reads = f"keep = Gather (mask, number) {content.replace('_out', '_new')} {kept}"
    model = loop(reads, states, *READERS["items first"], size)
    result = step(tmp_path, model, PASS)
    assert (result["outcome"], result.get("message", "")) == ("ok", "")
    feeds = {"x": normal(5, 2, 3), "mask": np.array([1, 0, 1, 1, 0], np.bool_).reshape(5, 1, 1)}
    for found, wanted in zip(outputs(saved(result), feeds), outputs(model, feeds), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_a_mask_in_a_scan(tmp_path: Path) -> None:
    cell = LSTM.replace("_out", "_new") + " h_out = Where (keep, h_new, h) s_out = Where (keep, s_new, s)"
    nodes = f"""h_last, s_last, y = Scan <num_scan_inputs = 2, scan_input_directions = [1, 1], body = body (
        float[2, 4] h, float[2, 4] s, bool[2, 1] keep, float[2, 3] item) => (float[2, 4] h_out, float[2, 4] s_out,
        float[2, 4] each) {{ {cell} each = Identity (h_out) }}> (h_start, s_start, mask, x)"""
    assert_same_with_a_layer(tmp_path, frame("hs", TIME_FIRST, nodes, "5, 2, 1"))


@pytest.mark.parametrize(
    ("form", "keeps"),
    [("items first", "{0}_d = Mul ({0}, half) {0}_out = Where (keep, {0}_new, {0}_d)")],
)
def test_a_mask_that_changes_states_stays(form: str, keeps: str, tmp_path: Path) -> None:
    reads, size, _ = MASKS[form]
    cell = RNN.replace("_out", "_new") + " " + keeps.format("h")
    model = loop(f"{reads} {cell}", "h", *READERS["items first"], size)
    model.graph.initializer.extend(made("g () => () {}", half=np.float32(0.5)).graph.initializer)
    result = step(tmp_path, model, PASS)
    assert (result["outcome"], "its mask does more than keeping" in result["message"]) == ("refused", True)


def test_carried_weights_are_known(tmp_path: Path) -> None:
    assert_same_with_a_layer(tmp_path, loop_with_carried_weights())


def test_a_list_of_states_is_stacked(tmp_path: Path) -> None:
    nodes = f"""empty = SequenceEmpty () h_last, all = Loop (count, yes, h_start, empty) <body = body (
        int64 number, bool go, float[2, 4] h, seq(float[2, 4]) list)
        => (bool on, float[2, 4] h_out, seq(float[2, 4]) more)
        {{ on = Identity (go) {FORWARD} {RNN} more = SequenceInsert (list, h_out) }}>
        y = ConcatFromSequence <axis = 1, new_axis = 1> (all)"""
    assert_same_with_a_layer(tmp_path, frame("h", BATCH_FIRST, nodes))


def test_a_loop_that_counts_by_itself(tmp_path: Path) -> None:
    nodes = f"""begin = Less (origin, limit) t_last, h_last, y = Loop (, begin, origin, h_start) <body = body (
        int64 number, bool go, int64 t, float[2, 4] h) => (bool on, int64 t_out, float[2, 4] h_out, float[2, 4] each)
        {{ t_out = Add (t, step) on = Less (t_out, limit)
        item = Gather <axis = 1> (x, t) {RNN} each = Identity (h_out) }}>"""
    model = frame("h", BATCH_FIRST, nodes)
    counting = made("g () => () {}", origin=np.int64(0), limit=np.int64(5), step=np.int64(1))
    model.graph.initializer.extend(counting.graph.initializer)
    assert_same_with_a_layer(tmp_path, model)


WHERE = "below = Less (h, n) n2 = Where (below, n, h) "


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (RESET_AFTER + WHERE + KERAS.replace("(left, n)", "(left, n2)"), "it has the operator Where"),
        (
            RESET_AFTER + KERAS.replace("Sub (unit, z)", "Sub (last_float, z)"),
            "its 1 states are computed in another way",
        ),
        (
            RNN.replace("h_out = Tanh (a)", "t = Tanh (a) h_out = Add (t, h)"),
            "its 1 states are computed in another way",
        ),
        (RNN.replace("MatMul (h, ku)", "MatMul (h, free)"), "it depends on 'free'"),
    ],
)
def test_other_cells_stay_and_say_why(cell: str, reason: str, tmp_path: Path) -> None:
    model = loop(cell, "h", *READERS["batch first"])
    model.graph.initializer.extend(made("g () => () {}", last_float=np.float32(4)).graph.initializer)
    model.graph.input.extend(made("g (float[4, 4] free) => (float[4, 4] y) { y = Identity (free) }").graph.input)
    result = step(tmp_path, model, PASS)
    assert result["outcome"] == "refused"
    assert reason in result["message"]


@pytest.mark.parametrize("attribute", ["clip = 0.5", 'activations = ["Sigmoid", "Relu", "Tanh"]'])
def test_a_layer_with_other_activations_stays(attribute: str, tmp_path: Path) -> None:
    cell = ONE_ITEM.replace("hidden_size = 4", f"hidden_size = 4, {attribute}")
    result = step(tmp_path, loop(cell, "hs", *READERS["batch first"]), PASS)
    assert result["outcome"] == "refused"
    assert "its LSTM has other activations or limits" in result["message"]
