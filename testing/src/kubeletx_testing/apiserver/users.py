"""Authentication by client certificates and bearer tokens.

In a certificate, CN is the user and each O is a group. A token is looked up by its text. Without credentials
the user is ``system:anonymous``; wrong credentials get 401. As with a real server, an expired certificate
passes the TLS handshake and then gets 401. A certificate of another CA fails in the handshake, unlike with a
real server, since Python's TLS cannot examine it later. Source: apiserver,
pkg/authentication/request/{x509,bearertoken,anonymous}.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from .errors import unauthorized

AUTHENTICATED: Final = "system:authenticated"
NODES: Final = "system:nodes"
MASTERS: Final = "system:masters"
_NODE_PREFIX: Final = "system:node:"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a request, with groups."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = {}

    @property
    def node_name(self) -> str:
        """Name of the node if the user is the agent of a node; else empty."""
        if NODES in self.groups and self.name.startswith(_NODE_PREFIX):
            return self.name.removeprefix(_NODE_PREFIX)
        return ""


ANONYMOUS: Final = User(name="system:anonymous", groups=("system:unauthenticated",))


def user_of(
    certificate: Mapping[str, Any] | None,
    authorization: str,
    find_token: Callable[[str], User | None],
    now: datetime,
) -> User:
    """Return the user of a request, by certificate or else by bearer token; anonymous if there is neither.

    `certificate`: the client's certificate from the TLS layer; None: it sent none. `authorization`: the
    Authorization header. `find_token`: returns the user of a token, None if it is invalid. Raises StatusError
    401 for an expired certificate or an invalid token.
    """
    if certificate:
        return _by_certificate(certificate, now)
    if not authorization:
        return ANONYMOUS
    scheme, _, token = authorization.partition(" ")
    user = find_token(token.strip()) if scheme.lower() == "bearer" else None
    if user is None:
        raise unauthorized()
    return user


def _by_certificate(certificate: Mapping[str, Any], now: datetime) -> User:
    start, end = (ssl.cert_time_to_seconds(certificate[field]) for field in ("notBefore", "notAfter"))
    if not start <= now.timestamp() <= end:
        raise unauthorized()
    parts = [pair for relative in certificate["subject"] for pair in relative]
    name = next((value for field, value in parts if field == "commonName"), "")
    if not name:
        raise unauthorized()
    groups = tuple(value for field, value in parts if field == "organizationName")
    return User(name=name, groups=(*groups, AUTHENTICATED))
