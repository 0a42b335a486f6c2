"""Settings that contradict each other or name nothing are refused at start, with the field and what to do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from kubeletx_libvirt.config import Settings

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBpOyMzs1yFhcdJpGqCFOQdNcGw6Xz7sRP8nTGe1u2hB me@desk"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"maxVcpus": -1}, r">= 1.*maxVcpus"),
        ({"maxVcpus": 0}, r">= 1.*maxVcpus"),
        ({"defaultMemoryBytes": 0}, r"defaultMemoryBytes"),
        ({"maxVirtualBytes": -5}, r"maxVirtualBytes"),
        ({"imageStallSeconds": 0}, r"imageStallSeconds"),
        ({"networks": {"a": {}}}, r"networks\.a: has neither a bridge nor a network"),
        ({"networks": {"a": {"subnet": "10.0.0.0/8"}}}, r"networks\.a: has neither"),
        ({"networks": {"a": {"bridge": "b", "network": "n"}}}, r"networks\.a: has both"),
        (
            {"networks": {"a": {"bridge": "b", "subnet": "10.0.0.0/99"}}},
            r"networks\.a\.subnet: '10.0.0.0/99'",
        ),
        ({"networks": {"a": {"bridge": "b", "dns": ["x"]}}}, r"networks\.a\.dns\[0\]: 'x'"),
        ({"networks": {"a": {"bridge": "b", "mtu": 9}}}, r"networks\.a\.mtu: 9"),
        (
            {"networks": {"a": {"bridge": "b", "routes": [{"destination": "10/99"}]}}},
            r"networks\.a\.routes\[0\]\.destination: '10/99'",
        ),
        ({"ports": {"p": {"network": "none"}}}, r"ports\.p\.network: 'none' is not in networks"),
        ({"ports": {"p": {"ipAddress": "10.0.0.300"}}}, r"ports\.p\.ipAddress"),
        ({"keyPairs": {"ops": "hello"}}, r"keyPairs\.ops: is no SSH public key"),
        ({"keyPairs": {"ops": " "}}, r"keyPairs\.ops: is empty"),
        ({"keyPairs": {"ops": KEY[:40]}}, r"keyPairs\.ops"),
        ({"imageHosts": ["https://images.example"]}, r"imageHosts: 'https://images.example' is not a server"),
        ({"imageHosts": ["a:b"]}, r"imageHosts: 'a:b'"),
        ({"imageHosts": [""]}, r"imageHosts: ''"),
        ({"imageDirectories": ["images"]}, r"imageDirectories: 'images' is not an absolute path"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_start(section: dict[str, Any], words: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(section, Settings)


def test_settings_that_work_are_taken() -> None:
    section = {
        "maxVcpus": 1,
        "networks": {"a": {"bridge": "b", "subnet": "10.0.0.7/8"}, "n": {"network": "default"}},
        "ports": {"p": {"network": "a"}, "q": {}},
        "keyPairs": {"ops": f'# two\n{KEY}\nrestrict,command="a b" {KEY}\n'},
        "imageDirectories": ["/srv/images"],
        "imageHosts": ["images.example", "*.cdn.example", "127.0.0.1:5000", "[fd00::1]:443"],
    }
    assert msgspec.convert(section, Settings).max_vcpus == 1
