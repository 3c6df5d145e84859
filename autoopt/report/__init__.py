"""Results for people: tables and sentences for the terminal, progress, HTML pages, Markdown, comparisons.

Everything here reads records of `autoopt.results` and returns text. Start with `run_view`, what is said of a run:
`run_text` writes it on the screen, `run_page` and `model_card` fill `templates`. `words` says how a value is written.
"""
