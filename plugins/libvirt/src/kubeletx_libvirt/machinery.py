"""Objects that the parts of one runtime share: its libvirt, what is recorded, and the network of its pods."""

from __future__ import annotations

import msgspec

from kubeletx.api import Host, Machine, ObjectRef, Resources, SandboxSpec
from kubeletx_libvirt.addresses import Addresses
from kubeletx_libvirt.client import Connection
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.domain.sizing import Size, size_of
from kubeletx_libvirt.domain_reader import DomainReader, EventWaits
from kubeletx_libvirt.network.pod_links import PodLinks
from kubeletx_libvirt.records import Records


class Machinery(msgspec.Struct, frozen=True, kw_only=True):
    """Made once for each runtime. `name`: the runtime's. `waits`: for events, by all calls of the runtime."""

    name: str
    host: Host
    settings: Settings
    connection: Connection
    records: Records
    domains: DomainReader
    waits: EventWaits
    links: PodLinks
    addresses: Addresses


class Part:
    """Base of the parts that use most of the machinery."""

    def __init__(self, machinery: Machinery) -> None:
        self._runtime = machinery.name
        self._host = machinery.host
        self._settings = machinery.settings
        self._connection = machinery.connection
        self._records = machinery.records
        self._domains = machinery.domains
        self._waits = machinery.waits
        self._links = machinery.links
        self._addresses = machinery.addresses

    def _record_event(self, pod: SandboxSpec, reason: str, message: str, *, type: str = "Warning") -> None:
        ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
        self._host.events.record(ref, type=type, reason=reason, message=message)

    def _size_of(self, resources: Resources, machine: Machine) -> Size:
        return size_of(
            resources,
            machine,
            default_memory_bytes=self._settings.default_memory_bytes,
            max_vcpus=self._settings.max_vcpus,
        )
