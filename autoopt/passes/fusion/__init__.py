"""Fusion: weights folded into neighbours, transformer operators, and ONNX Runtime's own graph optimization."""
