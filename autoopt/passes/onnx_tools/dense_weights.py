"""Sparse weights, which the runtime makes dense when it loads a model and most libraries leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoopt.model.lazy_imports import helper, np, numpy_helper
from autoopt.model.tensors import graphs, nodes
from autoopt.passes.onnx_tools.graphs import replace_items

if TYPE_CHECKING:
    from onnx import ModelProto, SparseTensorProto, TensorProto


def make_weights_dense(model: ModelProto) -> None:
    """Store sparse weights as dense ones, in place."""
    for graph in graphs(model):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse))
        graph.ClearField("sparse_initializer")
    for node in nodes(model):
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "sparse_value":
                value = _dense(attribute.sparse_tensor)
                replace_items(node.attribute, [helper.make_attribute("value", value)])


def _dense(sparse: SparseTensorProto) -> TensorProto:
    """The dense form; indices are positions in the flat tensor, or one row of coordinates for each value."""
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return numpy_helper.from_array(dense, sparse.values.name)
