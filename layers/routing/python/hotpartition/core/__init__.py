"""The pure core: keys, routes, placement, counting, detection, merging. Standard library only; no I/O, no clock."""
