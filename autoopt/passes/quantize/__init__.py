"""Quantisation: integer, float8 and 4-bit weights and activations."""
