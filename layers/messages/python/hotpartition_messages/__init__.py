"""The messages API: what clients send and get, over HTTP."""
