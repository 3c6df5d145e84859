"""Fusion: weights folded into neighbours, transformer operators, and operators in forms that onnxruntime runs faster.

Read `rule_passes` first, then `transformer`. `attention` joins what onnxruntime does not know.
"""
