"""The cause of a changed night, by measuring: what changed is varied, one factor at a time, then in pairs.

Read `bisect.py` first. `factors` lists what changed, `environments` makes interpreters with earlier versions of
libraries, `variants` makes the model of each combination, `timing` measures and profiles them.
"""
