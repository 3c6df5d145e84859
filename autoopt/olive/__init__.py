"""Workflow configurations of Microsoft Olive as dag.yaml.

Read `convert` first. `config` reads a configuration of any of Olive's versions into one record, `passes` makes the
graph. What has no equivalent becomes a remark with what to do instead.
"""

from autoopt.olive.convert import Conversion, convert

__all__ = ["Conversion", "convert"]
