"""What the adapters need of AWS itself: credentials, signed addresses, and what its variables say."""
