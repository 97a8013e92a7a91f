"""What the adapters need of AWS itself: credentials and signatures."""
