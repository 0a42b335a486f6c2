"""Settings of image pulls and image garbage collection. The defaults are the kubelet's."""

from __future__ import annotations

import msgspec

from .verification import VerificationSettings


class PullSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of image pulls.

    `serialize`, `parallel`: limits of concurrent pulls, see `at_once`. `qps` and `burst`: limits of pulls begun per
    second in each store (0: no limit). `backoff_seconds`: delay after the first failed pull of an image, doubled with
    each failure up to `backoff_cap_seconds`. `verification`: which pods may use an image that is present.
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
        """Maximum number of concurrent pulls from servers in one store; None for no limit.

        It is `parallel` if that is above 1, else 1 with `serialize` and no limit without.
        """
        if self.parallel is not None and self.parallel > 1:
            return self.parallel
        return 1 if self.serialize else None


class CollectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of image garbage collection.

    `high_percent`: disk usage at which removal begins. `low_percent`: disk usage down to which images are removed.
    `min_age_seconds`: minimum time since the pull and since the last use. `max_age_seconds`: time without use after
    which an image is removed in any case; 0 means never. `period_seconds`: interval of the collection.
    """

    high_percent: int = 85
    low_percent: int = 80
    min_age_seconds: float = 120.0
    max_age_seconds: float = 0.0
    period_seconds: float = 300.0
