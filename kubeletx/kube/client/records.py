"""`CustomResourceRecords`: stores `kubeletx.api.Records` as custom resources of a cluster.

Each record is one custom object: the object's name is the record's name, its resourceVersion the record's version, and
its ``spec`` the record's value. Labels, annotations and status of the object are never changed. The API server must
serve the resource; `definitions.install_definition` installs it. The resource's schema must not prune fields of
the values; the schema that `definition` returns accepts any value.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from kubeletx.api import Clock, Conflict
from kubeletx.api.records import (
    PAGE_RECORDS,
    Record,
    RecordEvent,
    RecordGone,
    RecordPage,
    RecordPut,
    RecordsSynced,
    check_record_name,
    record_json,
)

from ..types.custom import CustomObject, CustomObjectList
from ..types.meta import ObjectMeta
from .reflector import Reflector
from .requests import KubeClient, Patch
from .resources import Resource


class CustomResourceRecords:
    """Implements `kubeletx.api.Records`: each record is an object of one custom resource, in one namespace."""

    def __init__(
        self, client: KubeClient, resource: Resource, *, kind: str, clock: Clock, namespace: str = ""
    ) -> None:
        """`kind`: kind of the objects, such as ``VolumeAttachment``.

        `namespace`: empty for a cluster-scoped resource.
        """
        self._client = client
        self._resource = resource
        self._kind = kind
        self._clock = clock
        self._namespace = namespace

    async def create(self, name: str, value: Mapping[str, Any]) -> Record:
        made = {
            "apiVersion": f"{self._resource.group}/{self._resource.version}",
            "kind": self._kind,
            "metadata": {"name": name, **({"namespace": self._namespace} if self._namespace else {})},
            "spec": msgspec.Raw(record_json(name, value)),
        }
        return _record(await self._client.create(self._path(), made, CustomObject))

    async def get(self, name: str) -> Record:
        check_record_name(name)
        return _record(await self._client.get(self._path(name), CustomObject))

    async def list_page(self, *, token: str = "", limit: int = PAGE_RECORDS) -> RecordPage:
        params = {"limit": str(limit), **({"continue": token} if token else {})}
        page = await self._client.get(self._path(), CustomObjectList, params=params)
        return RecordPage(records=tuple(map(_record, page.items)), next_token=page.metadata.continue_)

    async def replace(self, name: str, value: Mapping[str, Any], *, expected_version: str) -> Record:
        """Replace the object's spec if the object has the version `expected_version`; returns the new record.

        The object's other fields stay unchanged. Raises NotFound, or Conflict if it has another version.
        """
        spec = msgspec.Raw(record_json(name, value))
        self._check_version(name, expected_version)
        patch = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": expected_version},
            {"op": "add", "path": "/spec", "value": spec},
        ]
        return _record(await self._client.patch(self._path(name), patch, CustomObject, kind=Patch.JSON))

    async def delete(self, name: str, *, expected_version: str) -> None:
        check_record_name(name)
        self._check_version(name, expected_version)
        # An object with finalizers exists until its last finalizer is removed.
        await self._client.delete(self._path(name), resource_version=expected_version)

    async def watch(self) -> AsyncGenerator[RecordEvent, None]:
        news = _News()
        reflector = Reflector(
            self._client, self._resource, CustomObject, news, clock=self._clock, namespace=self._namespace
        )
        task = asyncio.create_task(reflector.run(), name=f"watch records {self._resource.plural}")
        task.add_done_callback(news.end)
        try:
            while True:
                for event in await news.take():
                    yield event
                if task.done():
                    task.result()
        finally:
            task.cancel()
            await asyncio.wait({task})

    def _path(self, name: str = "") -> str:
        return self._resource.path(self._namespace, name)

    def _check_version(self, name: str, version: str) -> None:
        """Raise Conflict for a text that cannot be a resourceVersion; the server would answer 400."""
        if not version.isascii() or not version.isdecimal():
            raise Conflict(f"{self._resource.plural} {name!r}: {version!r} is not a version of it")


class _News:
    """Queue of changes that a watch has not yielded yet, at most one for each record. Implements `ReflectorSink`."""

    def __init__(self) -> None:
        self._waiting: dict[str, Record | None] = {}
        self._seen: dict[str, str] = {}
        """Version of each existing record that was yielded or waits to be yielded, by name."""
        self._reported: set[str] = set()
        """Names of records that were yielded and have not been yielded as deleted."""
        self._is_synced = self._tells_synced = False
        self._came = asyncio.Event()

    def replace(self, items: Sequence[CustomObject], unreadable: Sequence[ObjectMeta]) -> None:
        there = {item.metadata.name for item in items} | {record.name for record in unreadable}
        for name in self._seen.keys() - there:
            self._gone(name)
        for item in items:
            self.put(item)
        if not self._is_synced:
            self._is_synced = self._tells_synced = True
        self._came.set()

    def put(self, item: CustomObject) -> None:
        record = _record(item)
        if self._seen.get(record.name) != record.version:
            self._seen[record.name] = record.version
            self._waiting[record.name] = record
            self._came.set()

    def drop(self, item: CustomObject) -> None:
        self._gone(item.metadata.name)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the last record that could be decoded. The reflector has already logged the problem."""

    def end(self, task: asyncio.Future[None]) -> None:
        """Let `take` return, since the reflector's task has ended."""
        self._came.set()

    async def take(self) -> list[RecordEvent]:
        """Wait until there are changes, or `end` was called; then remove the changes and return them as events."""
        await self._came.wait()
        self._came.clear()
        waiting, self._waiting = self._waiting, {}
        events: list[RecordEvent] = []
        for name, record in waiting.items():
            if record is not None:
                self._reported.add(name)
                events.append(RecordPut(record))
            elif name in self._reported:
                self._reported.discard(name)
                events.append(RecordGone(name))
        if self._tells_synced:
            self._tells_synced = False
            events.append(RecordsSynced())
        return events

    def _gone(self, name: str) -> None:
        if self._seen.pop(name, None) is not None:
            self._waiting[name] = None
            self._came.set()


def definition(
    resource: Resource, *, kind: str, description: str, short_names: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the manifest of a CustomResourceDefinition for records. Its schema accepts any value as ``spec``."""
    value = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "description": description, "properties": {"spec": value}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": resource.plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {**names, **({"shortNames": list(short_names)} if short_names else {})},
            "versions": [version],
        },
    }


def _record(stored: CustomObject) -> Record:
    return Record(name=stored.metadata.name, version=stored.metadata.resource_version, value=stored.spec)
