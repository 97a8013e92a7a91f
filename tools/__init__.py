"""What only development needs: the local run, the simulator, the demo, trials and benchmarks."""
