"""What is asked, resolved once: the request, what workers read of it, the plan and the goal.

Read `problem.py` first, then `resolve.py`.
"""
