"""From a request to resolved inputs: model, data, script, plan and goal, read and checked.

Read `request.py` and `resolve.py` first.
"""
