"""Checks of the network: how much an interface carries and loses, and what can be reached."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from msgspec.structs import replace

from ..model import Reach
from .base import CheckOutcome, LookFacts, NodeCheck, amount, at_most, first_look
from .http_get import get, validate_url

_FEW_PACKETS: Final = 100
"""Below it, a share of errors says nothing."""
_GET_ADDRESS: Final = 0x8915
"""SIOCGIFADDR, see netdevice(7)."""
_ROUTE_UP: Final = 0x1
_ROUTE_REJECTS: Final = 0x200
IpFamily = Literal["any", "ipv4", "ipv6"]


class NetworkUseCheck(NodeCheck, frozen=True, kw_only=True, tag="network-usage"):
    """Bytes per second that an interface sends and receives, from look to look."""

    interface: str
    most: str

    def __post_init__(self) -> None:
        amount(self.most, 0)

    def look(self, facts: LookFacts) -> CheckOutcome:
        counters = _counters(facts, self.interface, "bytes")
        passed = facts.differences(counters)
        if passed is None or facts.seconds <= 0:
            return first_look(counters)
        rate = int(sum(passed.values()) / facts.seconds)
        message = f"{self.interface} carries {rate} bytes/s, at most {self.most}"
        return CheckOutcome(rate <= amount(self.most, 0), message, counters)


class NetworkErrorsCheck(NodeCheck, frozen=True, kw_only=True, tag="network-errors"):
    """Share of packets of an interface that are lost to errors or dropped, from look to look."""

    interface: str
    most: float = 1.0
    """Percent."""

    def look(self, facts: LookFacts) -> CheckOutcome:
        counters = _counters(facts, self.interface, "packets", "errors", "dropped")
        passed = facts.differences(counters)
        if passed is None:
            return first_look(counters)
        packets = sum(passed.values())
        lost = packets - passed["rx_packets"] - passed["tx_packets"]
        if packets < _FEW_PACKETS:
            return CheckOutcome(True, f"{self.interface}: {lost} of {packets} packets lost", counters)
        outcome = at_most(f"{self.interface} loses", 100 * lost / packets, self.most)
        return replace(outcome, counters=counters)


def _counters(facts: LookFacts, interface: str, *names: str) -> dict[str, int]:
    directory = facts.sys / "class" / "net" / interface / "statistics"
    both = [f"{way}_{name}" for way in ("rx", "tx") for name in names]
    return {name: int((directory / name).read_text()) for name in both}


class LinkCheck(NodeCheck, frozen=True, kw_only=True, tag="link"):
    """An interface exists, is up, and has a carrier."""

    interface: str

    def look(self, facts: LookFacts) -> CheckOutcome:
        directory = facts.sys / "class" / "net" / self.interface
        if not directory.exists():
            return CheckOutcome(False, f"there is no interface {self.interface}")
        try:
            is_up = (directory / "carrier").read_text().strip() == "1"
        except OSError:  # EINVAL: it is switched off
            return CheckOutcome(False, f"{self.interface} is down")
        return CheckOutcome(is_up, f"{self.interface} has {'a' if is_up else 'no'} carrier")


class RouteCheck(NodeCheck, frozen=True, kw_only=True, tag="route"):
    """A default route exists. `interface`: through it; empty: through any."""

    interface: str = ""
    family: IpFamily = "any"

    def look(self, facts: LookFacts) -> CheckOutcome:
        found = []
        if self.family != "ipv6":
            for words in _rows(facts, "route"):
                if words[1] == words[7] == "00000000" and int(words[3], 16) & _ROUTE_UP:
                    found.append(words[0])
        if self.family != "ipv4":
            for words in _rows(facts, "ipv6_route"):
                flags = int(words[8], 16)
                if words[1] == "00" and flags & _ROUTE_UP and not flags & _ROUTE_REJECTS:
                    found.append(words[9])
        ok = self.interface in found if self.interface else bool(found)
        through = f"through {', '.join(sorted(set(found)))}" if found else "missing"
        return CheckOutcome(ok, f"default route ({self.family}): {through}")


class AddressCheck(NodeCheck, frozen=True, kw_only=True, tag="address"):
    """An interface has an IPv4 address, or an IPv6 address that is valid beyond its link."""

    interface: str
    family: IpFamily = "any"

    def look(self, facts: LookFacts) -> CheckOutcome:
        found = [] if self.family == "ipv6" else _ipv4_address(self.interface)
        if self.family != "ipv4":
            found += [w[0] for w in _rows(facts, "if_inet6") if w[5] == self.interface and w[3] == "00"]
        return CheckOutcome(bool(found), f"addresses of {self.interface}: {', '.join(found) or 'none'}")


def _rows(facts: LookFacts, name: str) -> list[list[str]]:
    """Return the rows of a table in /proc/net, without its header; none if the kernel lacks the family."""
    try:
        lines = (facts.proc / "net" / name).read_text().split("\n")
    except FileNotFoundError:
        return []
    return [line.split() for line in lines if line.strip() and not line.startswith("Iface")]


def _ipv4_address(interface: str) -> list[str]:
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _GET_ADDRESS, interface.encode()[:15].ljust(256, b"\0"))
        except OSError:  # no such interface, or no address
            return []
    return [socket.inet_ntoa(answer[20:24])]


class DnsCheck(NodeCheck, frozen=True, kw_only=True, tag="dns"):
    """A name is resolved."""

    host: str
    blocks: ClassVar[bool] = True

    def look(self, facts: LookFacts) -> CheckOutcome:
        import socket

        try:
            found = {str(entry[4][0]) for entry in socket.getaddrinfo(self.host, None)}
        except (OSError, UnicodeError) as error:
            return CheckOutcome(False, f"{self.host}: {error}")
        return CheckOutcome(True, f"{self.host}: {', '.join(sorted(found))}")


class UrlCheck(NodeCheck, frozen=True, kw_only=True, tag="url"):
    """An HTTP or HTTPS server answers with 2xx."""

    url: str
    ca: str = ""
    blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate_url(self.url, self.ca)

    def look(self, facts: LookFacts) -> CheckOutcome:
        reach, text = get(self.url, self.deadline, self.ca)
        return CheckOutcome(reach is Reach.SUCCESS, text)
