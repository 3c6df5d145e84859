"""Conversions into a form that other passes accept.

`conversions` converts ONNX models; `torch_export` converts PyTorch models, which `torch_archive` reads safely.
"""
