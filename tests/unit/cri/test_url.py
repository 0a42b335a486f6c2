"""Endpoint URLs."""

from __future__ import annotations

import pytest

from kubeletx.api import InvalidConfig
from kubeletx.cri.url import parse_url


@pytest.mark.parametrize(
    ("url", "address", "location", "parameters"),
    [
        ("unix:///run/c.sock", "unix:/run/c.sock", "unix:///run/c.sock", {}),
        ("unix:/run/c.sock", "unix:/run/c.sock", "unix:///run/c.sock", {}),
        ("/run/c.sock", "unix:/run/c.sock", "unix:///run/c.sock", {}),
        ("unix:///run/c.sock?handler=crun", "unix:/run/c.sock", "unix:///run/c.sock", {"handler": "crun"}),
        ("tcp://127.0.0.1:4000", "127.0.0.1:4000", "tcp://127.0.0.1:4000", {}),
        ("tcp://[::1]:4000/?handler=x", "[::1]:4000", "tcp://[::1]:4000", {"handler": "x"}),
    ],
)
def test_sockets_and_hosts_are_understood(
    url: str, address: str, location: str, parameters: dict[str, str]
) -> None:
    target = parse_url(url)
    assert (target.address, target.location, target.parameters) == (address, location, parameters)


@pytest.mark.parametrize(
    "url",
    [
        "http://x:1",
        "unix://relative.sock",
        "tcp://nowhere",
        "tcp://host:port",
        "tcp://host:0",
        "tcp://host:70000",
        "tcp://:5",
        "tcp://host:5/path",
        f"unix:///{'x' * 120}",
        "",
    ],
)
def test_what_cannot_be_connected_to_is_refused_with_a_fix(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_url(url)
    assert caught.value.fix
    assert url in str(caught.value)


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("unix:///run/c.sock", False),
        ("tcp://127.0.0.1:1", False),
        ("tcp://[::1]:1", False),
        ("tcp://localhost:1", False),
        ("tcp://10.0.0.7:1", True),
        ("tcp://builder.example:1", True),
    ],
)
def test_only_hosts_beyond_loopback_are_remote(url: str, remote: bool) -> None:
    assert parse_url(url).is_remote is remote
