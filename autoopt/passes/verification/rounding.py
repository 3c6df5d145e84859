"""Outputs of a model as plain arrays, and how far rounding can move them, element by element."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.model.lazy_imports import np, onnx
from autoopt.model.split import beside_weights
from autoopt.model.tensors import return_values, tensors
from autoopt.passes.onnx_tools.graphs import producers
from autoopt.passes.verification.noisy_model import Pool, noisy_model

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import InferenceSession

RUNS: Final = (2, 6, 20)
"""Numbers of runs with noise to judge by; each is used where the one before does not explain a difference. Only the
last shows nearly all values that are within a rounding of a boundary: a run moves one with a chance of a half."""
MAX_BYTES: Final = 1 << 30
"""Larger models are not measured: the noisy copy needs their memory three times."""
POOL_SIZES: Final = (1 << 16, 1 << 20, 1 << 24, 1 << 26)
"""Numbers in a pool; the next size is used where a tensor has more elements."""


@dataclass(frozen=True)
class NoiseSpread:
    """The distance that noise moves one output."""

    deviation: np.ndarray | None
    """Largest absolute deviation of each element, in the shape of the output; infinite where noise makes a finite value
    infinite or NaN. For integers and texts: 1 where noise changes the value, else 0. None if it changes the shape."""
    jumps: bool = False
    """True if noise can make the output jump at elements that did not in these runs."""


class NoiseSource:
    """Runs a model with random rounding errors. The same calls in the same order give the same results."""

    def __init__(self, model: ModelProto, folder: Path | None = None, *, packs_weights: bool = True) -> None:
        """Take the model with its weights; it is prepared at the first run.

        `folder` is that of a split model, whose larger weights may be references. For `packs_weights`, see
        `make_plain_session`.
        """
        self._model = model
        self._folder = folder
        self._packs_weights = packs_weights
        self._session: InferenceSession | None = None
        self._attempted = False
        self._pools: tuple[Pool, ...] = ()
        self._pool_size = 0
        """Index in `POOL_SIZES`."""
        self._runs = 0
        self.jumps = False
        """See `NoiseSpread`; known after the first run."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
        """Run once, with newly drawn errors; return the `output_arrays`, or None if noise cannot be added."""
        if not self._attempted:
            self._attempted = True
            self._prepare()
        self._runs += 1
        while self._session is not None:
            try:
                return output_arrays(self._session.run(None, {**feeds, **self._draw_pools()}))
            except Exception:  # any exception type of the runtime, and its refusal where a pool is too small
                self._pool_size += 1
                if not self._pools or self._pool_size == len(POOL_SIZES):
                    self._session = None
        return None

    def close(self) -> None:
        """Close the session; the next run opens it again."""
        self._session, self._attempted = None, False

    def _draw_pools(self) -> dict[str, np.ndarray]:
        """Draw the numbers of this run."""
        generator = np.random.default_rng(self._runs)
        numbers: dict[str, np.ndarray] = {}
        for pool in self._pools:
            drawn = generator.random(POOL_SIZES[self._pool_size], dtype=np.float64 if pool.is_double else np.float32)
            drawn *= pool.high - pool.low
            drawn += pool.low
            numbers[pool.name] = drawn
        return numbers

    def _prepare(self) -> None:
        if sum(len(tensor.raw_data) for tensor in tensors(self._model)) > MAX_BYTES:
            return
        try:
            noisy = noisy_model(self._model, self.computed_types())
            if noisy is not None:
                self._session = self._open(noisy.model)
                self._pools, self.jumps = noisy.pools, noisy.jumps
        except Exception:  # the runtime's own, where it rejects a copy
            self._session = None

    def computed_types(self) -> dict[str, int]:
        """Element types of the floating-point tensors that nodes compute, as the runtime infers them.

        onnx's own inference does not know the runtime's operators.
        """
        kinds = {
            "tensor(float)": onnx.TensorProto.FLOAT,
            "tensor(double)": onnx.TensorProto.DOUBLE,
            "tensor(float16)": onnx.TensorProto.FLOAT16,
            "tensor(bfloat16)": onnx.TensorProto.BFLOAT16,
        }
        copy = deepcopy(self._model)
        return_values(copy.graph, producers(self._model.graph))
        types = {value.name: kinds.get(value.type, 0) for value in self._open(copy).get_outputs()}
        return {name: int(kind) for name, kind in types.items() if kind}

    def _open(self, model: ModelProto) -> InferenceSession:
        import onnxruntime

        from autoopt.model import io
        from autoopt.model.session import NO_PREPACKING, make_options

        options = make_options({"graph_optimization_level": "disable"})
        if not self._packs_weights:
            options.add_session_config_entry(NO_PREPACKING, "1")
        # Planning the reuse of memory takes most of the time to open a session with thousands of nodes.
        options.enable_mem_reuse = False
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
            if self._folder is None:
                path = io.save(model, scratch)
            else:
                path = stack.enter_context(beside_weights(model.SerializeToString(), self._folder))
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class SpreadMeter:
    """Measures how far rounding moves the outputs of one inference, given without noise."""

    def __init__(self, noise: NoiseSource, feeds: Mapping[str, np.ndarray], outputs: Sequence[object]) -> None:
        self._noise = noise
        self._feeds = feeds
        self._exact = output_arrays(outputs)
        self._runs: list[list[np.ndarray]] = []

    def close(self) -> None:
        """Close the session that adds noise; a further run opens it again."""
        self._noise.close()

    @property
    def is_used(self) -> bool:
        """True after the first run with noise."""
        return bool(self._runs)

    def spreads(self, runs: int) -> list[NoiseSpread] | None:
        """Return one item for each array of `output_arrays(outputs)`; None if noise cannot be added to the model.

        `runs` is the number of runs with noise; earlier ones count.
        """
        while len(self._runs) < runs:
            outputs = self._noise.run(self._feeds)
            if outputs is None or len(outputs) != len(self._exact):
                return None
            self._runs.append(outputs)
        spreads = []
        for number, exact in enumerate(self._exact):
            spreads.append(_spread(exact, [run[number] for run in self._runs[:runs]], self._noise.jumps))
        return spreads


def _spread(exact: np.ndarray, runs: Sequence[np.ndarray], jumps: bool) -> NoiseSpread:
    if any(run.shape != exact.shape for run in runs):
        return NoiseSpread(None, jumps)
    deviation = np.zeros(exact.shape)
    for run in runs:
        moved = run != exact
        if is_float(exact):
            before = exact.astype(np.float64)
            with np.errstate(invalid="ignore"):
                moved = np.abs(run.astype(np.float64) - before)
            # Infinite where only the run is not finite, and 0 where it is not finite without noise.
            moved = np.where(np.isfinite(before), np.nan_to_num(moved, nan=np.inf, posinf=np.inf), 0.0)
        deviation = np.maximum(deviation, moved)
    return NoiseSpread(deviation, jumps)


FLOATS: Final = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
"""Floats that numpy does not count among its floating types."""


def output_arrays(outputs: Sequence[object]) -> list[np.ndarray]:
    """Flatten outputs into arrays.

    A sequence becomes its items in order; a map becomes its keys and then its values, so that both are compared.
    """
    arrays: list[np.ndarray] = []
    for output in outputs:
        if isinstance(output, list) and output and isinstance(output[0], dict):
            arrays.append(np.array(list(map(list, output)), object))
            arrays.append(np.array([list(row.values()) for row in output]))
        elif isinstance(output, list):
            arrays += output_arrays(output)
        elif isinstance(output, dict):
            arrays += output_arrays([[output]])
        else:
            arrays.append(np.asarray(output))
    return arrays


def is_float(array: np.ndarray) -> bool:
    """True for an array of floats, those included that numpy itself does not know."""
    return bool(np.issubdtype(array.dtype, np.floating)) or str(array.dtype) in FLOATS
