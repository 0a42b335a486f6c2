"""Entries of the journal of requests to the pod network, written before each request to release addresses after a crash.

There is one file per pod. An entry without a result is an unfinished ADD. An entry marked as `deleting` has a DEL that
is repeated until it succeeds. `to_address` converts CNI results of 0.2.0, and of 0.3.0 and later.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeletx.api import PodAddress, PodUid

from .config import NetworkConfig


def to_address(result: dict[str, Any], *, netns: str, interface: str) -> PodAddress:
    """Return the pod's addresses from a CNI result; interfaces outside the pod's network namespace do not count.

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
