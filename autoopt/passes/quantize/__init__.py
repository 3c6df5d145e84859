"""Quantization to integers, float8 and 4-bit weights.

Read `dynamic` and `static` first. `weight_only`, `calibrated_weights`, `bnb4` and `nncf` are the variants;
`sensitivity` ranks layers by their quantization error. The other modules are what they share.
"""
