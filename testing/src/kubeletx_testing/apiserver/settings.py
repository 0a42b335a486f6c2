"""Settings of the double's cluster, chosen by a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec


class Settings(msgspec.Struct):
    """Changed at any time; the next request sees the change.

    `service_account_admission`: pods need their service account and get its token as a volume.
    `controllers`: what the controller manager does at once: each namespace gets the service account
    ``default`` and the config map ``kube-root-ca.crt``; approved certificate requests are signed.
    `auto_approve`: certificate requests of nodes are approved when they come. `certificate_seconds`: life of
    the certificates that are signed. `clock_offset`: how far the server's clock is ahead.
    `bookmark_seconds`: how often a quiet watch that allows bookmarks gets one.
    """

    service_account_admission: bool = True
    controllers: bool = True
    auto_approve: bool = True
    certificate_seconds: int = 24 * 3600
    clock_offset: timedelta = timedelta()
    bookmark_seconds: float = 60.0

    def now(self) -> datetime:
        """The time by the server's clock."""
        return datetime.now(UTC) + self.clock_offset


def timestamp(moment: datetime) -> str:
    """Format like metav1.Time: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
