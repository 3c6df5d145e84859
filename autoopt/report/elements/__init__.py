"""The elements of tables, charts and HTML pages, whatever they show.

Read `table` first. `html` makes pages, and `drawing` draws what `axes` and the descriptions of charts say.
"""
