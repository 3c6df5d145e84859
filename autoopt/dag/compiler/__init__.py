"""From a spec and the facts about model and target to a plan.

`compile` is the outline: `pruning` judges single passes, `path_rules` judges chains step by step, `prefix_tree` counts
and lists the chains that are left, `chain_builder` builds each `chain`, `plan` holds the result, `rendering` shows it.
"""
