"""Objects that the parts of one runtime share: its libvirt, what is recorded, and the network of its pods."""

from __future__ import annotations

import msgspec

from kubeletx.api import Host
from kubeletx_libvirt.addresses import Addresses
from kubeletx_libvirt.client import Connection
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.domain_reader import DomainReader, Stops
from kubeletx_libvirt.network.pod_links import PodLinks
from kubeletx_libvirt.records import Records


class Machinery(msgspec.Struct, frozen=True, kw_only=True):
    """Made once for each runtime. `name`: the runtime's. `stops`: machines that a call of the agent stops."""

    name: str
    host: Host
    settings: Settings
    connection: Connection
    records: Records
    domains: DomainReader
    stops: Stops
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
        self._stops = machinery.stops
        self._links = machinery.links
        self._addresses = machinery.addresses
