"""Trials of the detection on the local run: how soon, how often, and what a killed consumer costs."""
