"""The demonstration: a chat workload against the local run, one conversation gets hot, and every message is checked."""
