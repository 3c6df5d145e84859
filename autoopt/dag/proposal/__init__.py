"""A pass graph proposed for a model: what to try on its target at a level, and why not the rest.

`propose` is the outline: `templates` reads the tables, `inputs` has the facts that they name, `proposal_priors`
says what is ruled out and what comes first, `dag_yaml` writes it all.
"""
