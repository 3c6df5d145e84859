"""Conversion from float32 to float16, bfloat16, or a mixture found by measuring."""
