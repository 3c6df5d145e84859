"""Quantization to integers, float8 and 4-bit weights.

Read `dynamic` and `static` first. `weight_only`, `calibrated_weights` and `nncf` are the variants. `ort_quantizer` has
what models need before and after onnxruntime's quantizers, `calibration` the ranges of activations, `block_weights` the
rounding of weights. The other modules are what they share.
"""
