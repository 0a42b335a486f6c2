"""Journal of requests to the pod network. It is written before each request, to release addresses after a crash.

There is one file per pod. An entry without a result is an unfinished ADD. An entry marked as `deleting` has a DEL that
is repeated until it succeeds. `to_address` converts CNI results of 0.2.0, and of 0.3.0 and later.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import structlog

from kubeletx.api import PodAddress, PodUid
from kubeletx.linux.files import remove_file, replace_file

from .config import NetworkConfig


def to_address(result: dict[str, Any], *, netns: str, interface: str) -> PodAddress:
    """Return the pod's addresses from a CNI result, without those of interfaces outside the pod's network namespace.

    `netns`: path of that namespace. `interface`: name of the pod's interface in it.
    """
    interfaces = result.get("interfaces") or []
    ips: list[str] = []
    gateways: list[str] = []
    for entry in _entries(result):
        index = entry.get("interface")
        if isinstance(index, int) and index < len(interfaces) and not interfaces[index].get("sandbox"):
            continue
        ips.append(entry["address"])
        if gateway := entry.get("gateway"):
            gateways.append(gateway)
    mine = [i for i in interfaces if i.get("name") == interface and i.get("sandbox")]
    return PodAddress(
        ips=tuple(ips),
        gateways=tuple(gateways),
        interface=interface,
        netns=netns,
        mac=mine[0].get("mac", "") if mine else "",
        result=result,
    )


def _entries(result: dict[str, Any]) -> list[dict[str, Any]]:
    if "ips" in result:
        return [entry for entry in result["ips"] if entry.get("address")]
    old = [result.get("ip4"), result.get("ip6")]
    return [{"address": e["ip"], "gateway": e.get("gateway")} for e in old if e and e.get("ip")]


log = structlog.get_logger(__name__)


class CniAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """Journal entry: attachment of one pod to the CNI network.

    `netns`: path of the network namespace. `ports`: CNI portMappings. `config`: the configuration used for ADD, since
    the files may change before DEL. `result`: CNI result; None while ADD is unfinished. `deleting`: DEL is due.
    """

    uid: PodUid
    name: str
    namespace: str
    netns: str
    interface: str
    ports: list[dict[str, Any]] = []
    config: NetworkConfig
    result: dict[str, Any] | None = None
    deleting: bool = False


class Journal:
    """Reads and writes the journal files in `directory`, one per pod.

    `save` and `remove` block until the change is on disk.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> dict[PodUid, CniAttachment]:
        """Read all entries; an unreadable file is logged and left in place."""
        entries: dict[PodUid, CniAttachment] = {}
        if not self._directory.is_dir():
            return entries
        for path in sorted(self._directory.glob("*.json")):
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=CniAttachment)
            except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
                log.warning("Failed to read a pod network record", path=str(path), err=str(error))
                continue
            entries[entry.uid] = entry
        return entries

    def save(self, entry: CniAttachment) -> None:
        """Write an entry, which replaces the pod's earlier one."""
        replace_file(self._path(entry.uid), msgspec.json.encode(entry))

    def remove(self, uid: PodUid) -> None:
        """Remove the pod's entry."""
        remove_file(self._path(uid))

    def _path(self, uid: PodUid) -> Path:
        return self._directory / f"{uid}.json"
