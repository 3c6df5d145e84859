"""Helpers that pass implementations share.

`graphs` walks and edits ONNX graphs, `opsets` reads and raises versions, and `libraries` calls onnx-ir and onnxscript
quietly.
"""
