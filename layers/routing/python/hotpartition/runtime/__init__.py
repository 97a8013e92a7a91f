"""What makes functions of the jobs: settings, wiring, telemetry."""
