"""Fusion: weights folded into neighbours, transformer operators, and ONNX Runtime's own graph optimization.

Read `weight_folding` first, then `transformer`. `attention` and `operator_forms` join other patterns.
"""
