"""Passes described to people.

`document` renders the entries of `autoopt passes list` and docs/passes.md; `scaffold` writes a new pass from a
template.
"""
