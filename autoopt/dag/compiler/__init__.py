"""From a spec and the facts about model and target to a plan.

`compile` is the outline: `pass_graph`, `node_spaces` and `priors` read the spec; `pruning` judges single passes,
`path_rules` judges chains step by step, `prefix_tree` counts and lists the chains that are left, `chain` builds each,
`plan` holds the result, `rendering` shows it.
"""
