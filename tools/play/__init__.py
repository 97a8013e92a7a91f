"""One player for all that runs on a local run: it writes, reads, watches, breaks parts, and judges."""
