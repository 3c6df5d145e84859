"""Models cut, joined and extended, and the form in which they are stored.

Read `signature` first, which edits inputs and outputs. `stages` cuts and joins graphs, `adapters` takes weights out,
`storage` decides on the files.
"""
