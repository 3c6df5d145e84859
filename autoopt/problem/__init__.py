"""The problem of a run, resolved once: the request, the facts that workers read, the plan and the goal.

Read `problem.py` first, then `resolve.py`.
"""
