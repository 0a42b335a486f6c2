"""Property tests judge what the code does, not how fast a busy machine draws examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kubeletx", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kubeletx")
