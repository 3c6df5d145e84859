"""Surrogate models: search points as rows of numbers, several objectives as one loss, regressions and acquisition.

Read `models.py` first. Numpy is imported when they are called; no other numeric library is.
"""
