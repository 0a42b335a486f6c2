"""Questions of DHCP clients and what they are told, as frames."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.config import Route
from kubeletx_libvirt.network.dhcp import (
    ACK,
    DISCOVER,
    DNS,
    INFORM,
    KIND,
    LARGEST,
    LEASE_SECONDS,
    MASK,
    MTU,
    NAK,
    OFFER,
    REQUEST,
    ROUTER,
    ROUTES,
    SEARCH,
    SERVER,
    WANTED,
    Lease,
    answer,
    lease_of,
)
from kubeletx_libvirt.network.links import GuestLink, LinkKind

from kubeletx.api import Dns

GUEST = bytes.fromhex("020000000001")
SERVED_BY = bytes([10, 88, 0, 1])
MINE = bytes([10, 88, 0, 5])


def lease(**changes: object) -> Lease:
    parts: dict[str, object] = {
        "name": "eth0",
        "kind": LinkKind.DIRECT,
        "source": "d",
        "mac": "02:00:00:00:00:01",
        "addresses": ("10.88.0.5/22", "fd00::5/64"),
        "routes": (
            Route(destination="0.0.0.0/0", gateway="10.88.0.1"),
            Route(destination="::/0", gateway="fd00::1"),
        ),
        "dns": Dns(servers=("10.96.0.10", "fd00::10"), searches=("svc.local", "example.org")),
        "mtu": 1450,
        **changes,
    }
    found = lease_of(GuestLink(**parts), "02:00:00:00:00:99")  # type: ignore[arg-type]
    assert found is not None
    return found


def question(
    kind: int,
    options: dict[int, bytes] | None = None,
    *,
    ciaddr: bytes = bytes(4),
    giaddr: bytes = bytes(4),
    flags: int = 0,
    port: int = 67,
) -> bytes:
    body = struct.pack(
        "!BBBBIHH4s4s4s4s16s64s128s4s",
        *(1, 1, 6, 0, 0xABCD, 0, flags, ciaddr, bytes(4), bytes(4), giaddr, GUEST, b"", b""),
        bytes.fromhex("63825363"),
    )
    for number, value in {KIND: bytes([kind]), **(options or {})}.items():
        body += bytes([number, len(value)]) + value
    body += b"\xff"
    udp = struct.pack("!HHHH", 68, port, 8 + len(body), 0) + body
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(4), b"\xff" * 4)
    return b"\xff" * 6 + GUEST + b"\x08\x00" + ip + udp


def reported(frame: bytes | None) -> tuple[bytes, bytes, dict[int, bytes]]:
    """The target's MAC and the address given, then all options."""
    assert frame is not None
    assert frame[6:12] == bytes.fromhex("020000000099")
    assert sum_of(frame[14:34]) == 0xFFFF
    udp = frame[34:]
    pseudo = frame[26:34] + struct.pack("!BBH", 0, 17, len(udp))
    assert sum_of(pseudo + udp) == 0xFFFF
    message = udp[8:]
    assert len(message) >= 300
    assert struct.unpack_from("!I", message, 4) == (0xABCD,)
    options: dict[int, bytes] = {}
    at = 240
    while message[at] != 255:
        number, length = message[at], message[at + 1]
        options[number] = options.get(number, b"") + message[at + 2 : at + 2 + length]
        at += 2 + length
    return frame[:6], message[16:20], options


def sum_of(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_a_question_is_answered_with_the_pods_address_for_ever_and_all_that_belongs_to_it() -> None:
    target, address, options = reported(answer(question(DISCOVER), lease()))
    assert (target, address) == (GUEST, MINE)
    assert options == {
        KIND: bytes([OFFER]),
        SERVER: SERVED_BY,
        LEASE_SECONDS: b"\xff" * 4,
        MASK: bytes([255, 255, 252, 0]),
        ROUTER: SERVED_BY,
        DNS: bytes([10, 96, 0, 10]),
        MTU: (1450).to_bytes(2),
        ROUTES: b"\0" + SERVED_BY,
        SEARCH: b"\x03svc\x05local\0\x07example\x03org\0",
    }


@pytest.mark.parametrize("options", [{WANTED: MINE, SERVER: SERVED_BY}, {WANTED: MINE}])
def test_the_pods_own_address_is_granted(options: dict[int, bytes]) -> None:
    assert reported(answer(question(REQUEST, options), lease()))[2][KIND] == bytes([ACK])


def test_a_renewal_is_granted_to_the_address_that_asks() -> None:
    frame = answer(question(REQUEST, ciaddr=MINE), lease())
    assert reported(frame)[2][KIND] == bytes([ACK])
    assert frame is not None
    assert frame[30:34] == MINE


def test_any_other_address_is_refused_for_all_to_hear() -> None:
    target, address, options = reported(answer(question(REQUEST, {WANTED: bytes([10, 0, 0, 9])}), lease()))
    assert (target, address) == (b"\xff" * 6, bytes(4))
    assert options == {KIND: bytes([NAK]), SERVER: SERVED_BY}


def test_a_client_with_an_address_gets_the_rest() -> None:
    _, address, options = reported(answer(question(INFORM, ciaddr=MINE), lease()))
    assert address == bytes(4)
    assert LEASE_SECONDS not in options
    assert options[DNS] == bytes([10, 96, 0, 10])


def test_a_client_that_hears_only_broadcasts_gets_one() -> None:
    assert reported(answer(question(DISCOVER, flags=0x8000), lease()))[0] == b"\xff" * 6


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        question(DISCOVER)[:200],
        question(DISCOVER, port=68),
        question(DISCOVER, giaddr=SERVED_BY),
        question(4),
        question(7),
        question(REQUEST, {SERVER: bytes([10, 0, 0, 1]), WANTED: MINE}),
        b"\xff" * 6 + GUEST + b"\x86\xdd" + bytes(300),
    ],
)
def test_what_is_not_a_question_to_us_is_not_answered(frame: bytes) -> None:
    assert answer(frame, lease()) is None


def test_a_gateway_outside_the_subnet_comes_first_as_a_route_of_the_link() -> None:
    gateway = bytes([169, 254, 1, 1])
    one = lease(addresses=("10.1.2.3/32",), routes=(Route(destination="0.0.0.0/0", gateway="169.254.1.1"),))
    options = reported(answer(question(DISCOVER), one))[2]
    assert options[ROUTES] == b"\x20" + gateway + bytes(4) + b"\0" + gateway


def test_a_message_is_no_larger_than_the_client_takes() -> None:
    many = lease(
        dns=Dns(servers=("10.96.0.10",), searches=tuple(f"domain-{n}.example.org" for n in range(30)))
    )
    usual = answer(question(DISCOVER), many)
    assert SEARCH not in reported(usual)[2]
    large = answer(question(DISCOVER, {LARGEST: (1500).to_bytes(2)}), many)
    assert len(reported(large)[2][SEARCH]) > 255
    assert usual is not None
    assert large is not None
    assert len(usual) - 14 <= 576
    assert len(large) - 14 <= 1500


def test_a_link_without_an_ipv4_address_has_nothing_to_tell() -> None:
    link = GuestLink(name="eth0", kind=LinkKind.DIRECT, source="d", mac="m", addresses=("fd00::5/64",))
    assert lease_of(link, "02:00:00:00:00:99") is None


@given(st.binary(max_size=80), st.integers(min_value=0, max_value=360))
def test_no_bytes_of_a_guest_make_it_fail(noise: bytes, at: int) -> None:
    frame = question(DISCOVER, {WANTED: MINE})
    answer(noise, lease())
    answer(frame[:at] + noise + frame[at + len(noise) :], lease())
