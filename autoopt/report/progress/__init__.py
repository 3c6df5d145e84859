"""Progress of a search while it runs: a live view on a terminal, lines elsewhere.

Read `progress` first: it receives the events of a run and chooses the display.
"""
