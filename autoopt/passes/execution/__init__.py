"""Passes executed in a worker.

Read `executor` first: it takes a model through passes one at a time. `user_code` loads the user's script, and
`calibration` turns calibration data into model inputs.
"""
