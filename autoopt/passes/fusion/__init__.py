"""Fusion: weights folded into neighbours, transformer operators, and ONNX Runtime's own graph optimization.

Read `rule_passes` first, then `transformer`. `attention` joins what onnxruntime does not know.
"""
