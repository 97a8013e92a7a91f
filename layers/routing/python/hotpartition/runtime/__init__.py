"""Settings, wiring and telemetry: with them the jobs become functions."""
