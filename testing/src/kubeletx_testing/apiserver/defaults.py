"""Defaults and validation of small resources that nodes read or write: services and leases.

Source: kubernetes, pkg/apis/core/v1/defaults.go, pkg/registry/core/service/storage/alloc.go,
pkg/apis/coordination/validation.
"""

from __future__ import annotations

import ipaddress
import re
from itertools import islice
from typing import Final

from .errors import Json, bad_request, invalid
from .resources import resource
from .store import Store

SERVICE_RANGE: Final = ipaddress.ip_network("10.96.0.0/16")
_MICRO_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)$")


def new_service(made: Json, store: Store) -> Json:
    """Return a new service with defaults and, unless it has one, the next free cluster IP.

    A service of type ExternalName gets no cluster IP. A headless service keeps its ``clusterIP: None``.
    """
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **(made.get("spec") or {})}
    ports = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec.get("ports") or []]
    if ports:
        spec["ports"] = ports
    if spec["type"] != "ExternalName":
        address = spec.get("clusterIP") or _free_address(store)
        network = {
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        }
        spec = {**network, **spec, "clusterIP": address, "clusterIPs": [address]}
    return {**made, "spec": spec, "status": {"loadBalancer": {}}}


def check_lease(lease: Json) -> Json:
    """Return the lease unchanged if it is valid.

    Raises StatusError 400 for a time that does not have six decimals, 422 for a leaseDurationSeconds below 1.
    """
    spec = lease.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        found = spec.get(field)
        if found is not None and not _MICRO_TIME.match(str(found)):
            raise bad_request(
                f'Lease in version "v1" cannot be handled as a Lease: parsing time "{found}" as '
                '"2006-01-02T15:04:05.000000Z07:00": cannot parse'
            )
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        problem = f"Invalid value: {seconds}: must be greater than 0"
        cause = ("spec.leaseDurationSeconds", "FieldValueInvalid", problem)
        raise invalid(resource("leases"), lease["metadata"]["name"], [cause])
    return lease


def _free_address(store: Store) -> str:
    taken = {
        (service.value.get("spec") or {}).get("clusterIP") for service in store.each(resource("services"))
    }
    return next(
        str(address) for address in islice(SERVICE_RANGE.hosts(), 9, None) if str(address) not in taken
    )
