"""One load generator and one way to start the local run, for demonstration, trials, example, acceptance and tests."""
