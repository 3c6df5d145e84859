"""Removal of what computes nothing, constant folding, and whole-graph simplifiers."""
