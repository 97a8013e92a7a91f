"""Runs `examples/sensors`, an application of another team, on this machine, and judges it as the demonstration is."""
