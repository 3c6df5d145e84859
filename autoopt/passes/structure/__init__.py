"""Models cut, joined and extended, and the form in which they are stored.

Read `signature` first, which only edits inputs and outputs. `merge` and `stages` join and cut graphs,
`pre_post_processing` extends them, `storage` decides on the files.
"""
