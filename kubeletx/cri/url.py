"""Parses endpoint URLs: ``unix:///run/x.sock?handler=crun``, ``tcp://127.0.0.1:4000``, or the path of a socket."""

from __future__ import annotations

import ipaddress
from urllib.parse import parse_qsl, urlsplit

import msgspec

from kubeletx.api import InvalidConfig

LONGEST_SOCKET_PATH = 107
"""Maximum length in bytes. In Linux, ``sun_path`` has 108 bytes including its closing zero."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Parsed endpoint URL. `scheme`: unix or tcp. `address`: target in gRPC's syntax.

    `location`: the URL without parameters, for messages. `parameters`: the URL's query.
    """

    scheme: str
    address: str
    location: str
    parameters: dict[str, str]

    @property
    def is_remote(self) -> bool:
        """True unless the address is a unix socket or a loopback address."""
        if self.scheme == "unix":
            return False
        host = self.address.rsplit(":", 1)[0].strip("[]")
        if host == "localhost":
            return False
        try:
            return not ipaddress.ip_address(host).is_loopback
        except ValueError:
            return True


def parse_url(url: str) -> Target:
    """Parse an endpoint URL. Raises InvalidConfig for an invalid one; its message says how to correct it."""
    if url.startswith("/"):
        url = f"unix://{url}"
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme == "unix":
        return _unix(url, parts.netloc + parts.path, parameters)
    if parts.scheme == "tcp":
        return _tcp(url, parts.netloc, parts.path, parameters)
    raise _bad(url, f"scheme {parts.scheme!r}", "use unix:///path/to.sock or tcp://host:port")


def _unix(url: str, path: str, parameters: dict[str, str]) -> Target:
    if not path.startswith("/"):
        raise _bad(url, "the socket's path is not absolute", "write unix:///path/to.sock")
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        raise _bad(url, f"the socket's path is longer than {LONGEST_SOCKET_PATH} bytes", "use a shorter one")
    return Target(scheme="unix", address=f"unix:{path}", location=f"unix://{path}", parameters=parameters)


def _tcp(url: str, netloc: str, path: str, parameters: dict[str, str]) -> Target:
    host, colon, port = netloc.rpartition(":")
    if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _bad(url, "no host and port", "write tcp://host:port")
    if path not in ("", "/"):
        raise _bad(url, f"path {path!r}", "write tcp://host:port without a path")
    return Target(scheme="tcp", address=netloc, location=f"tcp://{netloc}", parameters=parameters)


def _bad(url: str, fault: str, fix: str) -> InvalidConfig:
    return InvalidConfig(field="endpoint", problem=f"{fault} in {url!r}", fix=fix)
