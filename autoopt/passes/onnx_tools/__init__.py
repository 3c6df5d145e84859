"""Helpers that pass implementations share.

`graphs` walks and edits ONNX graphs, `opsets` reads and raises versions, `rewriting` applies onnx-ir passes and
onnxscript rules, and `quiet` silences libraries.
"""
