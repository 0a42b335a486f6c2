"""Settings of pulls and collection; defaults are the kubelet's."""

from __future__ import annotations

import msgspec

from .verification import VerificationSettings


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of pulls. `serialize` False: `parallel` pulls at once per store, None for no limit.

    `qps` and `burst`: pulls begun per second and store (0: no limit). Back-off is per image: `backoff_seconds`, doubled
    with each failure up to `backoff_cap_seconds`. `verification`: which pods may use an image that is present.
    """

    serialize: bool = True
    parallel: int | None = None
    qps: float = 5.0
    burst: int = 10
    backoff_seconds: float = 10.0
    backoff_cap_seconds: float = 300.0
    verification: VerificationSettings = VerificationSettings()

    @property
    def at_once(self) -> int | None:
        """Maximum of concurrent pulls in one store; None for no limit."""
        if self.parallel is not None and self.parallel > 1:
            return self.parallel
        return 1 if self.serialize else None


class CollectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of image garbage collection. `max_age_seconds`: 0 means no removal by age."""

    high_percent: int = 85
    low_percent: int = 80
    min_age_seconds: float = 120.0
    max_age_seconds: float = 0.0
    period_seconds: float = 300.0
