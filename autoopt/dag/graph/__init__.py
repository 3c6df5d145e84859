"""The pass graph of a spec, the search space of each of its nodes, and the priors about its chains and values.

Read `pass_graph` first.
"""
