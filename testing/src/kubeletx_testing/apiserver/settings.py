"""Settings of the API server double, which a test chooses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec


class Settings(msgspec.Struct):
    """Settings of a cluster. A test may change them at any time; they take effect at the next request.

    `service_account_admission`: pods need an existing service account and get its token as a volume.
    `controllers`: the double does at once what the controller manager does: each namespace gets the service
    account ``default`` and the config map ``kube-root-ca.crt``, approved certificate requests are signed,
    disruption budgets get their status, and deleted claims and volumes lose their finalizers when nothing uses them. `auto_approve`: certificate requests of nodes are approved when they
    are created. `certificate_seconds`: maximum validity of signed certificates. `clock_offset`: time by which
    the server's clock is ahead of this machine's clock. `bookmark_seconds`: interval of bookmarks while no
    object changes, in a watch that asked for bookmarks.
    """

    service_account_admission: bool = True
    controllers: bool = True
    auto_approve: bool = True
    certificate_seconds: int = 24 * 3600
    clock_offset: timedelta = timedelta()
    bookmark_seconds: float = 60.0

    def now(self) -> datetime:
        """Return the time of the server's clock, in UTC."""
        return datetime.now(UTC) + self.clock_offset


def timestamp(moment: datetime) -> str:
    """Format a time as metav1.Time does: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
