"""Conversion from float32 to float16, bfloat16, or a mixture found by measuring.

Read `half_floats` first; `conversion` is what it and `mixed_float16` share. `full_floats` converts back.
"""
