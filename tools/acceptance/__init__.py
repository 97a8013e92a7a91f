"""`hotpartition check` against a local run of its own: what a deployment ends with, before there is one."""
