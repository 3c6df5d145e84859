"""The result of a run: the tables at its end, its HTML page, charts, the model card, comparisons, lists.

Read `run` first: the table of the source, the best model and the front. `conclusion` is the end of a run on the screen,
and `run_page` the page with the evidence of `charts`, `effects`, `measurement` and `lineage`.
"""
