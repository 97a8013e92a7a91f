"""The adapters' access to AWS itself: credentials, signed addresses, environment variables."""
