"""Events about attachments: reports for users.

In a cluster they are core/v1 Events (`cluster`); without one they are log lines.
"""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from kubeletx.kube.types.meta import ObjectReference

log = structlog.get_logger(__name__)

COMPONENT: Final = "kubeletx-flexvolume"
LOCK_BROKEN: Final = "AttachmentLockBroken"
ENTRY_REMOVED: Final = "AttachmentEntryRemoved"
NOT_REMOVED: Final = "AttachmentNotRemoved"


class AttachmentEvents(Protocol):
    """Receiver of reports."""

    async def of_volume(self, name: str, *, reason: str, message: str) -> None:
        """Report something about a volume. `reason`: one word in CamelCase; `message`: one sentence."""
        ...

    async def of_object(self, subject: ObjectReference, *, reason: str, message: str) -> None:
        """Report something about another object of the cluster."""
        ...


class LoggedEvents:
    """Reports as log lines. Implements `AttachmentEvents`."""

    async def of_volume(self, name: str, *, reason: str, message: str) -> None:
        log.warning("Reported an event", volume=name, reason=reason, message=message)

    async def of_object(self, subject: ObjectReference, *, reason: str, message: str) -> None:
        log.warning(
            "Reported an event", object=f"{subject.kind} {subject.name}", reason=reason, message=message
        )
