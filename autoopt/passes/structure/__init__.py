"""Models cut, joined and extended, and the form in which they are stored.

Read `signature` first, which only edits inputs and outputs. `stages` cuts and joins graphs, `pre_post_processing`
extends them, `storage` decides on the files.
"""
