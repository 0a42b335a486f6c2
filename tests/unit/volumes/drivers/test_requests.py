"""Requests for volume drivers, built from pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.volumes.drivers.requests import inline_request

DISK = {"name": "disk", "flexVolume": {"driver": "example.com/disk"}}
DEVICES = [{"name": "disk", "devicePath": "/dev/disk"}]


@pytest.mark.parametrize(
    ("spec", "is_block", "directory"),
    [
        ({"containers": [{"name": "a", "image": "i", "volumeDevices": DEVICES}]}, True, "volumeDevices"),
        ({"virtualMachine": {"name": "a", "image": "i", "volumeDevices": DEVICES}}, True, "volumeDevices"),
        ({"containers": [{"name": "a", "image": "i"}]}, False, "volumes"),
    ],
)
def test_a_volume_of_a_pod_is_a_device_if_its_units_use_it_as_one(
    spec: dict[str, Any], is_block: bool, directory: str
) -> None:
    value = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u1"},
        "spec": {**spec, "volumes": [DISK]},
    }
    pod = msgspec.convert(value, type=Pod)
    request = inline_request(
        pod, pod.spec.volumes[0], "flex_volume", Path("/root"), "spec.volumes[0]"
    ).request
    assert request.is_block is is_block
    assert request.target == f"/root/pods/u1/{directory}/example.com~disk/disk"
