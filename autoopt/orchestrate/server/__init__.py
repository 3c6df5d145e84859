"""The Prefect server: its address and start-up, outages, heartbeats, and the processes of `autoopt serve`.

Read `connection` first.
"""
