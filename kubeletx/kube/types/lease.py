"""The Lease object. Source: coordination.k8s.io/v1 Lease."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from .meta import ApiStruct, ListMeta, ObjectMeta, constant


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """Holder of a lease, and its times.

    `acquire_time`, `renew_time`: metav1.MicroTime, as text. `lease_transitions`: how often the holder
    changed.
    """

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(ApiStruct, frozen=True, kw_only=True):
    """Lease that a holder keeps by renewing it: as a node's heartbeat, or as a lock."""

    api_version: str = constant("coordination.k8s.io/v1")
    kind: str = constant("Lease")
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class LeaseList(ApiStruct, frozen=True, kw_only=True):
    """One page of leases."""

    metadata: ListMeta = ListMeta()
    items: tuple[Lease, ...] = ()


def micro_time(moment: datetime) -> str:
    """Format a time as metav1.MicroTime: RFC 3339 in UTC with six fractional digits."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micro_time_after(text: str | None, now: datetime) -> str:
    """Format `now` as metav1.MicroTime, or a microsecond after the time in `text` if that is later than `now`.

    `text`: an earlier MicroTime; it is ignored if it is None or invalid.
    """
    try:
        last = datetime.fromisoformat(text or "")
        return micro_time(max(now, last + timedelta(microseconds=1)))
    except (ValueError, TypeError, OverflowError):  # TypeError: without a time zone
        return micro_time(now)
