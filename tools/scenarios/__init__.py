"""The studies, each a file of values, a `run(seed)` and bars: `python -m tools.scenarios NAME`."""
