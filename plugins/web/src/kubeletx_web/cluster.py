"""Access to the page for users of the cluster, with the TLS, authentication and authorization of the kubelet's API.

    browser ── TLS, client certificate or token ─► kubeletx-web ── POST /v1/access ─► agent: user, and right on nodes/proxy

This process loads the agent's certificate, and asks the agent who has access. A decision is kept for `KEPT_SECONDS`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog

from kubeletx.api import Clock, InvalidConfig, KubeletxError

from .access import Refused
from .agent import Agent
from .http import Request

log = structlog.get_logger(__name__)

FILES: Final = "/v1/access"
"""Path of the agent's answer with the files of TLS."""
KEPT_SECONDS: Final = 10.0
MAX_KEPT: Final = 1000
LOOK_SECONDS: Final = 10.0
_FILES: Final = ("certificateFile", "keyFile", "clientCaFile")
_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


class ClusterAccess:
    """Lets requests pass whose users may get nodes/proxy of this node, as the agent decides."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._salt = os.urandom(32)
        self._kept: dict[bytes, tuple[float, Mapping[str, Any]]] = {}
        """Decisions and their ends by a hash of the credentials, so that no token is stored."""

    async def check(self, request: Request) -> str:
        """Let the request pass, or raise Refused. Raises KubeletxError if the agent does not decide."""
        site, mode = request.headers.get("sec-fetch-site", "none"), request.headers.get("sec-fetch-mode")
        if site not in ("none", "same-origin") and mode != "navigate":
            raise Refused(403, "another page asked for this; open the address yourself")
        credentials = {"authorization": request.headers.get("authorization"), "subject": request.subject}
        key, now = (
            hashlib.blake2b(repr(credentials).encode(), key=self._salt).digest(),
            self._clock.monotonic(),
        )
        ends_at, decision = self._kept.pop(key, (now, {}))
        if now >= ends_at:
            ends_at, decision = now + KEPT_SECONDS, await self._agent.decide(credentials)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = ends_at, decision
        if decision.get("allowed") is not True:
            raise Refused(401 if decision.get("status") == 401 else 403, str(decision.get("message")))
        return ""


class ClusterTls:
    """TLS of the kubelet's API, whose files are loaded again when they have changed."""

    def __init__(self, files: Mapping[str, Any]) -> None:
        """`files`: answer of the agent's ``/v1/access``. Raises InvalidConfig for an unusable file."""
        self.files = files
        """Can be set to a newer answer."""
        self._loaded = self._found()
        self._current = make_context(files)
        self.context = self._current
        """For the listener; each connection uses the files as they are then."""
        self.context.sni_callback = self._choose

    def _found(self) -> tuple[object, ...]:
        return (self.files, *(_stamp(self.files.get(name)) for name in _FILES))

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # OpenSSL calls this for each handshake, also of a client that names no server.
        found = self._found()
        if found != self._loaded:
            self._loaded = found
            try:
                self._current = make_context(self.files)
            except InvalidConfig as error:
                log.warning("Kept the certificates of the page", err=str(error))
        connection.context = self._current

    async def follow(self, agent: Agent, look_seconds: float = LOOK_SECONDS) -> None:
        """Ask the agent again and again for its files, whose paths can change, until cancelled."""
        while True:
            await asyncio.sleep(look_seconds)
            with suppress(KubeletxError):
                self.files = await agent.get(FILES, dict)


def make_context(files: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a server's context. Raises InvalidConfig."""
    certificate, key, authority = [files.get(name, "") for name in _FILES]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS.get(str(files.get("minVersion")), ssl.TLSVersion.TLSv1_2)
    # A session that is resumed would keep a client whose authority was removed.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    try:
        if files.get("ciphers"):
            context.set_ciphers(files["ciphers"])
        # Without a passphrase OpenSSL asks for it on the terminal, and blocks.
        context.load_cert_chain(certificate, key, password="")
        if authority:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cafile=authority)
    except (OSError, TypeError, ValueError) as error:
        raise InvalidConfig(
            field="--web-address",
            problem=f"the files {certificate}, {key} or {authority}: {error}",
            fix="correct the certificates of the kubelet's API",
        ) from error
    return context


def _stamp(path: Any) -> tuple[int, int, int] | None:
    try:
        status = Path(path or "").stat()
    except (OSError, TypeError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
