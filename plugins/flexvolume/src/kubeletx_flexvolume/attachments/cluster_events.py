"""`ClusterEvents`: reports about attachments as core/v1 Events, which ``kubectl describe`` shows.

The event of a volume is about its claim; without a claim about its PersistentVolume, and without that about its
attachment record. A report that cannot be written is logged, never raised: the step that it is about has happened.
"""

from __future__ import annotations

import secrets
from typing import Final

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, within
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import EVENTS
from kubeletx.kube.types.event import Event, EventSource
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference

from .events import COMPONENT, EventSubject
from .modes import VolumeLookup

log = structlog.get_logger(__name__)

_SECONDS: Final = 10.0
_LONGEST_MESSAGE: Final = 1024
"""Maximum length of an event's message in characters. Source: kubernetes, pkg/apis/core/validation/events.go."""
_LONGEST_NAME: Final = 220
_NAMESPACE: Final = "default"
"""Namespace of events about objects that have none."""


class ClusterEvents:
    """Reports as Event objects of a cluster. Implements `AttachmentEvents`."""

    def __init__(
        self, client: KubeClient, volumes: VolumeLookup, clock: Clock, *, node: str, record_kind: EventSubject
    ) -> None:
        """`client`: its identity may create events. `node`: reporter. `record_kind`: kind of attachment records."""
        self._client = client
        self._volumes = volumes
        self._clock = clock
        self._node = node
        self._record_kind = record_kind

    async def of_volume(self, name: str, *, reason: str, message: str) -> None:
        try:
            subject = await self._subject(name)
        except KubeletxError as error:
            log.warning(
                "Failed to look up the object of an event", volume=name, reason=reason, err=str(error)
            )
            subject = msgspec.structs.replace(self._record_kind, name=name)
        await self.of_object(subject, reason=reason, message=message)

    async def of_object(self, subject: EventSubject, *, reason: str, message: str) -> None:
        what = f"{subject.kind} {subject.name}"
        log.warning("Reported an event", object=what, reason=reason, message=message)
        event = self._event(subject, reason, message[:_LONGEST_MESSAGE])
        try:
            async with within(_SECONDS, f"the event about {what} was not written"):
                await self._client.create(EVENTS.path(event.metadata.namespace), event, Event)
        except KubeletxError as error:
            log.warning("Failed to write an event", object=what, reason=reason, err=str(error))

    async def _subject(self, name: str) -> EventSubject:
        found = await self._volumes.find(name)
        if found.claim.name:
            claim = found.claim
            return EventSubject(
                kind="PersistentVolumeClaim", namespace=claim.namespace, name=claim.name, uid=claim.uid
            )
        if found.uid:
            return EventSubject(kind="PersistentVolume", name=name, uid=found.uid)
        return msgspec.structs.replace(self._record_kind, name=name)

    def _event(self, subject: EventSubject, reason: str, message: str) -> Event:
        now = self._clock.now()
        namespace = subject.namespace or _NAMESPACE
        return Event(
            metadata=ObjectMeta(
                name=f"{subject.name[:_LONGEST_NAME]}.{secrets.token_hex(8)}", namespace=namespace
            ),
            involved_object=ObjectReference(
                api_version=subject.api_version,
                kind=subject.kind,
                namespace=subject.namespace or None,
                name=subject.name,
                uid=subject.uid or None,
            ),
            reason=reason,
            message=message,
            type="Warning",
            count=1,
            first_timestamp=now,
            last_timestamp=now,
            source=EventSource(component=COMPONENT, host=self._node),
            reporting_component=COMPONENT,
            reporting_instance=self._node,
        )
