"""The CDK app: one stack in three environments. `app.py` at the repository root is its entry."""
