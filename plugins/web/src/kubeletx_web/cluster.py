"""Access to the page for users of the cluster, with the TLS, authentication and authorization of the kubelet's API.

    browser ── TLS, client certificate or token ─► kubeletx-web ── POST /v1/access ─► agent: user, and right on nodes/proxy

This process loads the agent's certificate, and asks the agent who has access. A decision is kept for `KEPT_SECONDS`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from kubeletx.api import Clock, InvalidConfig, KubeletxError

from .access import Refused
from .agent import Agent
from .values import AccessFiles, Credentials, Decision

log = structlog.get_logger(__name__)

KEPT_SECONDS: Final = 10.0
MAX_KEPT: Final = 1000
LOOK_SECONDS: Final = 10.0
"""Time between two looks at the files of TLS."""
_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


class ClusterAccess:
    """Lets requests pass whose users may get nodes/proxy of this node, as the agent decides."""

    def __init__(self, agent: Agent, clock: Clock) -> None:
        self._agent = agent
        self._clock = clock
        self._salt = os.urandom(32)
        self._kept: dict[bytes, tuple[float, Decision]] = {}
        """Decisions and their ends by a hash of the credentials, so that no token is stored."""

    async def check(self, request: web.Request) -> None:
        """Let the request pass, or raise Refused. Raises KubeletxError if the agent does not decide."""
        site, mode = request.headers.get("Sec-Fetch-Site", "none"), request.headers.get("Sec-Fetch-Mode")
        if site not in ("none", "same-origin") and mode != "navigate":
            raise Refused(403, "another page asked for this; open the address yourself")
        decision = await self._decide(_credentials(request))
        if not decision.allowed:
            raise Refused(decision.status, decision.message)

    async def _decide(self, credentials: Credentials) -> Decision:
        now = self._clock.monotonic()
        key = hashlib.blake2b(repr(credentials).encode(), key=self._salt).digest()
        ends_at, decision = self._kept.get(key, (now, None))
        if decision is not None and now < ends_at:
            return decision
        decision = await self._agent.decide(credentials)
        self._kept.pop(key, None)
        while len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (now + KEPT_SECONDS, decision)
        return decision


def _credentials(request: web.Request) -> Credentials:
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    return Credentials(
        authorization=request.headers.get("Authorization"), subject=(certificate or {}).get("subject", ())
    )


class ClusterTls:
    """TLS settings of the kubelet's API. `load` comes first; `follow` loads files again that have changed."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._loaded: tuple[object, ...] = ()
        self._first: ssl.SSLContext | None = None
        self._current: ssl.SSLContext | None = None
        self._problem = ""

    async def load(self) -> ssl.SSLContext:
        """Return the context of a listener; each connection uses the files that were loaded last.

        Raises NotFound if the agent does not serve the kubelet's API, InvalidConfig for an unusable file.
        """
        files = await self._agent.get("/v1/access", AccessFiles)
        found = (files, *map(_stamp, (files.certificate_file, files.key_file, files.client_ca_file)))
        if self._current is None or found != self._loaded:
            self._current, self._loaded = make_context(files), found
        if self._first is None:
            self._first = self._current
            self._first.sni_callback = self._choose
        return self._first

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        # OpenSSL calls this for each handshake, also of a client that names no server.
        assert self._current is not None
        connection.context = self._current

    async def follow(self, look_seconds: float = LOOK_SECONDS) -> None:
        """Load the files again whenever they change; unusable ones are left out, until cancelled."""
        while True:
            await asyncio.sleep(look_seconds)
            problem = ""
            try:
                await self.load()
            except KubeletxError as error:
                problem = str(error)
            if problem and problem != self._problem:
                log.warning("Kept the certificates of the page", err=problem)
            self._problem = problem


def make_context(files: AccessFiles) -> ssl.SSLContext:
    """Return a server's context. Raises InvalidConfig."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS.get(files.min_version, ssl.TLSVersion.TLSv1_2)
    # A session that is resumed would keep a client whose authority was removed.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    try:
        if files.ciphers:
            context.set_ciphers(files.ciphers)
        # Without a passphrase OpenSSL asks for it on the terminal, and blocks.
        context.load_cert_chain(files.certificate_file, files.key_file, password="")
        if files.client_ca_file is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cafile=files.client_ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(
            field="--web-address",
            problem=f"the files {files.certificate_file}, {files.key_file} or {files.client_ca_file}: {error}",
            fix="correct the certificates of the kubelet's API",
        ) from error
    return context


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    try:
        status = Path(path or "").stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
