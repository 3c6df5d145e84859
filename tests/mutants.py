"""Models with something wrong in them, made at random from small good ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import builders
import onnx


def mutants(count: int, seed: int, folder: Path) -> list[Path]:
    """`count` mutated models as files `0.onnx`, `1.onnx`, ... in `folder`."""
    rng = random.Random(seed)
    originals = [p.read_bytes() for p in builders.small_models() if p.stat().st_size < 20_000]
    paths = []
    for number in range(count):
        path = folder / f"{number}.onnx"
        path.write_bytes(rng.choice((mutate_bytes, mutate_graph, mutate_graph))(rng.choice(originals), rng))
        paths.append(path)
    return paths


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """`data` with a byte changed, or a few put in, taken out, repeated or cut off."""
    made, at, kind = bytearray(data), rng.randrange(len(data)), rng.randrange(8)
    if kind <= 4:
        made[at] = rng.randrange(256)
    elif kind == 5:
        made[at:at] = rng.randbytes(rng.randint(1, 8))
    elif kind == 6:
        del made[at : at + rng.randint(1, 8)]
    else:
        made[at:at] = made[at : at + rng.randint(1, 64)]
    return bytes(made)


def mutate_graph(data: bytes, rng: random.Random) -> bytes:
    """A model that still is one, with one to three things in it that are wrong."""
    made = onnx.load_from_string(data)
    for _ in range(rng.randint(1, 3)):
        if made.graph.node:
            rng.choice(GRAPH_MUTATIONS)(made, rng.choice(made.graph.node), rng)
    return made.SerializeToString()  # type: ignore[no-any-return]


def _other_op(made: Any, node: Any, rng: random.Random) -> None:
    node.op_type = rng.choice(OPS)


def _other_wiring(made: Any, node: Any, rng: random.Random) -> None:
    names = [name for n in made.graph.node for name in [*n.input, *n.output]] + ["", "nowhere"]
    side = node.input if node.input and rng.random() < 0.6 else node.output
    if side and rng.random() < 0.7:
        side[rng.randrange(len(side))] = rng.choice(names)
    else:
        side.append(rng.choice(names))


def _other_attribute(made: Any, node: Any, rng: random.Random) -> None:
    wild = rng.choice([0, -1, 1, 2, 3, 7, 1 << 20, -(1 << 40), (1 << 63) - 1])
    for attribute in node.attribute:
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = wild
        elif attribute.HasField("i"):
            attribute.i = wild
    if not node.attribute or rng.random() < 0.3:
        name = rng.choice(["axis", "num_outputs", "axes", "to", "group", "perm", "split", "body"])
        node.attribute.append(onnx.helper.make_attribute(name, rng.choice([wild, [wild, 1], 1.5, "text"])))


def _other_shape(made: Any, node: Any, rng: random.Random) -> None:
    value = rng.choice([*made.graph.input, *made.graph.output])
    dims = value.type.tensor_type.shape.dim
    if dims:
        dims[rng.randrange(len(dims))].dim_value = rng.choice([0, -1, 1, 5, 1 << 40])
    value.type.tensor_type.elem_type = rng.choice([value.type.tensor_type.elem_type, 0, 1, 7, 8, 9, 99])


def _other_weights(made: Any, node: Any, rng: random.Random) -> None:
    if made.graph.initializer:
        tensor = rng.choice(made.graph.initializer)
        tensor.dims.append(rng.choice([0, 2, -1, 1 << 40]))
        tensor.data_type = rng.choice([tensor.data_type, 0, 8, 16, 99])


def _other_opset(made: Any, node: Any, rng: random.Random) -> None:
    if made.opset_import:
        made.opset_import[0].version = rng.choice([0, 1, 6, 9, 13, 18, 20, 22, 999])


GRAPH_MUTATIONS = (
    _other_op,
    _other_wiring,
    _other_wiring,
    _other_attribute,
    _other_shape,
    _other_weights,
    _other_opset,
)
OPS = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
