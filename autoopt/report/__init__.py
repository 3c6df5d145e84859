"""Results for people: tables and sentences for the terminal, progress, HTML pages, Markdown, comparisons.

Everything here reads records of `autoopt.results` and returns text. Start with `runs`, the result of a run; `words`
decides which metrics are shown and how a value is written, and `elements` holds the parts of tables, charts and pages.
"""
