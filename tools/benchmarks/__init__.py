"""Measures what users feel and pay, each as a ratio against what they would pick instead: `make bench`."""
