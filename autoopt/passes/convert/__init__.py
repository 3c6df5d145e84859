"""Conversions into a form that other passes accept.

`versions`, `functions` and `inputs` convert ONNX models; `torch_export` converts PyTorch models, which
`torch_archive` reads safely.
"""
