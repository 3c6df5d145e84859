"""Conversion from float32 to float16, bfloat16, or a mixture found by measuring; and back.

Read `half_floats` first; `conversion` is what its passes share. `full_floats` converts back.
"""
