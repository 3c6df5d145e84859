"""Surrogate models: search points as rows of numbers, several objectives as one loss, regressions and acquisition.

Read `models.py` first. `small_gaussian_process` needs no numeric library; the others import numpy when called.
"""
