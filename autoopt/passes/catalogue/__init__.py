"""Passes described to people.

`document` renders the entries of `autoopt passes list`; `scaffold` writes a new pass from a
template.
"""
