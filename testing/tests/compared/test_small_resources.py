"""Services, volumes and leases, as far as nodes care."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletx_testing.apiserver import ApiClient, StatusError
from testing.tests.compared.api_cluster import refusal


def test_a_service_gets_an_address_and_whole_ports(admin: ApiClient, namespace: str) -> None:
    made = [
        admin.create("services", {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}, namespace)[
            "spec"
        ]
        for name in ("one", "two")
    ]
    assert made[0]["type"] == "ClusterIP"
    assert made[0]["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert made[0]["clusterIP"].startswith("10.96.")
    assert made[0]["clusterIP"] != made[1]["clusterIP"]


def test_a_headless_service_has_none(admin: ApiClient, namespace: str) -> None:
    spec = {"clusterIP": "None", "selector": {"a": "b"}}
    made = admin.create("services", {"metadata": {"name": "one"}, "spec": spec}, namespace)["spec"]
    assert (made["clusterIP"], made["clusterIPs"]) == ("None", ["None"])


def test_volumes_and_claims_wait_to_be_bound(admin: ApiClient, namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = admin.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim}, namespace)
    assert (made["spec"]["volumeMode"], made["status"]["phase"]) == ("Filesystem", "Pending")
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    volume = admin.create("persistentvolumes", {"metadata": {"name": namespace}, "spec": spec})
    assert (volume["spec"]["persistentVolumeReclaimPolicy"], volume["status"]["phase"]) == (
        "Retain",
        "Pending",
    )


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40}, 0),
        ({"renewTime": "2026-01-01T00:00:00Z"}, 400),
        ({"leaseDurationSeconds": 0}, 422),
    ],
)
def test_a_lease_has_times_with_six_decimals(
    admin: ApiClient, namespace: str, spec: dict[str, Any], code: int
) -> None:
    if not code:
        assert admin.create("leases", {"metadata": {"name": "one"}, "spec": spec}, namespace)["spec"] == spec
        return
    with pytest.raises(StatusError) as error:
        admin.create("leases", {"metadata": {"name": "one"}, "spec": spec}, namespace)
    assert refusal(error)[0] == code
