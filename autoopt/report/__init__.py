"""Results for people: tables and sentences for the terminal, progress, HTML pages, Markdown, comparisons.

Everything here reads records of `autoopt.results` and returns text. Start with `run.py`, the result of a run;
`figures.py` decides which metrics are shown, `formatting.py` how a value is written. `run_page.py` is the HTML page of
a run; `charts.py` describes its charts and `drawing.py` draws them.
"""
