"""Passes made of other passes: sequences, run once or until nothing changes."""
