"""The patterns of write sharding side by side, on one workload: `make simulate-patterns`."""
