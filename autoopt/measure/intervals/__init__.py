"""95 % confidence intervals: `items` over the items of a data set, `replicas` over independent measurements."""
