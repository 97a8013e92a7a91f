"""What all tests share."""

from hypothesis import HealthCheck, settings

# Shared and busy machines are slow at times: no test of ours is about the time that an example takes.
settings.register_profile("hotpartition", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hotpartition")
