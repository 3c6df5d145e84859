"""The model that passes run on, with what the checks know about it.

A worker keeps the input model of its last call: a search runs many configurations of a pass on one model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.memory import free_memory, return_unused
from autoopt.model import io
from autoopt.model.lazy_imports import np
from autoopt.model.split import is_split, sizes_of
from autoopt.outcome import Cause
from autoopt.passes.base import Pass, Refused, Touch
from autoopt.passes.base.conversion import make_weights_dense
from autoopt.passes.onnx_tools.graphs import EXTERNAL_DATA_BYTES, fixed_size
from autoopt.passes.verification.equivalence import Reference
from autoopt.passes.verification.fingerprint import fingerprint, outline
from autoopt.registry import form_of

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

KEPT_BYTES: Final = 256 << 20
"""Each call loads larger input models again."""
KEPT_FILES: Final = 8
"""An input model next to more files than this is loaded again: its folder is not an artifact's."""

_Key: TypeAlias = tuple[str, tuple[tuple[str, int, int, int, int], ...]]
"""The surroundings; name, device, inode, size and modification time of each file."""


@dataclass
class CurrentModel:
    """A model file, loaded at the first use."""

    path: Path
    loaded: ModelProto | None = None
    reference: Reference | None = None
    """Its inputs and outputs, for the equivalence check; made by the executor."""
    is_small: bool = False
    """True if memory for several copies is no concern."""
    output_ranks: dict[str, int] = field(default_factory=dict)
    """Numbers of dimensions of the outputs whose declared shapes the model's own outputs contradict."""
    _outlined: ModelProto | None = None
    _outlines: dict[tuple[Touch, ...], str] = field(default_factory=dict)
    _fingerprints: dict[tuple[Touch, ...], str] = field(default_factory=dict)

    @property
    def model(self) -> ModelProto:
        """The model with its weights. Passes get copies of it."""
        if self.loaded is None:
            self.loaded = self._load()
        return self.loaded

    @property
    def outlined(self) -> ModelProto:
        """The model for comparisons. Of a split one, the weights are references, unless it is loaded anyway."""
        if self.loaded is not None or not is_split(self.path):
            return self.model
        if self._outlined is None:
            self._outlined = self._load(weights=False)
        return self._outlined

    @property
    def signature(self) -> ModelProto:
        """The model to read inputs from, without the weights if they are neither needed nor loaded."""
        if self.loaded is None and not self.is_small and self.path.suffix == ".onnx":
            return io.parse(self.path)
        return self.model

    def copy(self, *, lazy: bool = False) -> ModelProto:
        """A copy for a pass to change, the only one in memory if the model is not small.

        If it is `lazy`, as for onnx-ir, the weights of a split model stay external data.
        """
        if lazy and is_split(self.path):
            return self._load(weights=False)
        if self.is_small:
            return deepcopy(self.model)
        self.release()
        return self._load()

    def release(self) -> None:
        """Forget the model and its reference, which holds it too, unless the model is small."""
        if self.is_small:
            return
        self.loaded = None
        if self.reference is not None and is_split(self.path):
            self.reference.model = self.outlined
            self.reference.drop_noise()
        else:
            self.reference = None

    def _load(self, weights: bool = True) -> ModelProto:
        if self.path.suffix == ".ort":
            raise Refused("the model is in ORT format, which graph passes cannot read")
        model = io.load(self.path) if weights else io.parse(self.path)
        make_weights_dense(model)
        _open_shapes(model, self.output_ranks)
        return model

    def open_wrong_output_shapes(self, outputs: Sequence[object]) -> bool:
        """Replace the declared shapes that `outputs` of the model contradict by open ones; False if there are none.

        The runtime ignores them, but shape inference, simplifiers and converters build on them.
        """
        wrong: dict[str, int] = {}
        for value, array in zip(self.outlined.graph.output, outputs, strict=True):
            if isinstance(array, np.ndarray) and _contradicts(value, array):
                wrong[value.name] = array.ndim
        if not wrong:
            return False
        self.output_ranks |= wrong
        _open_shapes(self.outlined, wrong)
        self._outlines.clear()
        self._fingerprints.clear()
        return True

    def computes_like(self, other: ModelProto, touches: tuple[Touch, ...]) -> bool:
        """True if `other` has the same fingerprint; see there for `touches`."""
        if touches not in self._outlines:
            self._outlines[touches] = outline(self.outlined, touches)
        if outline(other, touches) != self._outlines[touches]:
            return False
        if touches not in self._fingerprints:
            self._fingerprints[touches] = fingerprint(self.outlined, touches)
        return fingerprint(other, touches) == self._fingerprints[touches]


def _contradicts(value: ValueInfoProto, output: np.ndarray) -> bool:
    """Tell if an output has another rank than declared, or another size along a dimension that is declared fixed."""
    if not value.type.tensor_type.HasField("shape"):
        return False
    sizes = list(map(fixed_size, value.type.tensor_type.shape.dim))
    if len(sizes) != output.ndim:
        return True
    return any(size not in (0, actual) for size, actual in zip(sizes, output.shape, strict=True))


def _open_shapes(model: ModelProto, ranks: Mapping[str, int]) -> None:
    """Give outputs shapes of these ranks with open dimensions, in place."""
    for value in model.graph.output:
        if value.name in ranks:
            shape = value.type.tensor_type.shape
            shape.Clear()
            for _ in range(ranks[value.name]):
                shape.dim.add()


_last: dict[_Key, CurrentModel] = {}
"""The input model of the last call, if it is worth keeping."""


@contextmanager
def opened(path: Path, surroundings: str) -> Iterator[CurrentModel]:
    """The model at `path`, taken over from the last call if that had the same input.

    `surroundings` identifies what else the reference depends on: the user's data and script.
    """
    key = _key(path, surroundings)
    current = _last.get(key) if key else None
    _last.clear()
    if current is None:
        current = CurrentModel(path, is_small=key is not None)
    current.path = path
    if current.reference is not None:
        current.reference.path = path
    yield current
    if key:
        if current.reference is not None:
            current.reference.drop_noise()
        _last[key] = current


def _key(path: Path, surroundings: str) -> _Key | None:
    """The identity of a model file and its external data; None if it is not worth keeping."""
    if not path.is_file():
        return None
    if is_split(path):
        if sum(sizes_of(path).values()) > KEPT_BYTES:
            return None
        return surroundings, ((str(path), 0, 0, 0, 0),)  # the name is the digest of the content
    files = sorted(path.parent.iterdir())
    if len(files) > KEPT_FILES:
        return None
    stats = [(file.name, file.stat()) for file in files]
    if sum(stat.st_size for _, stat in stats) > KEPT_BYTES:
        return None
    return surroundings, tuple((name, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in stats)


ESTIMATED_BYTES: Final = 128 << 20
"""Memory is estimated for models of more bytes."""
WHOLE_FACTOR: Final = 5.5
"""Memory that a pass with all weights and the check of its result take, as a multiple of the model's bytes: 5.0 with
2.4 GB, 1 of them where libraries get the model as bytes."""
LAZY_FACTOR: Final = 2.5
"""The same where the weights stay in their files: 1.1 to 2.0 in transformers of 0.5 to 4.4 GB."""
LIBRARIES: Final = 200 << 20
"""Bytes for the libraries that passes import late."""


class TooLarge(Refused):
    """A refusal that holds for this machine and its limits only."""

    cause = Cause.SET_UP


def refuse_too_large(pass_: Pass, model: CurrentModel) -> None:
    """Compare what a pass will need for a model with what this process may still allocate.

    Raises:
        TooLarge: it needs more.
    """
    form = form_of(type(pass_))
    if form in ("source", "options"):
        return
    size = _size_of(model.path)
    if size <= ESTIMATED_BYTES:
        return
    return_unused()
    room = free_memory()
    if room is None:
        return
    if model.loaded is not None:
        room += size
    may_stay = form != "proto" and not model.is_small
    in_files = size > EXTERNAL_DATA_BYTES or form == "ir"
    needed = int(size * (LAZY_FACTOR if may_stay and in_files else WHOLE_FACTOR)) + LIBRARIES
    if needed > room:
        raise TooLarge(
            f"too large for the memory of this worker: a model of {_gigabytes(size)} needs about {_gigabytes(needed)}, "
            f"and {_gigabytes(room)} are free; raise limits.memory, leave the pass out, or use a machine with more "
            "memory"
        )


def _size_of(model: Path) -> int:
    """Bytes of a model and its external data."""
    if is_split(model):
        return sum(sizes_of(model).values())
    files = [file for file in model.parent.iterdir() if file.is_file()]
    if len(files) > KEPT_FILES:  # not the folder of an artifact
        files = [model]
    return sum(file.stat().st_size for file in files)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
