"""`ServerTls`: the TLS context of the kubelet's API. Its files are read again when they change.

Each handshake begins with the context that asyncio was given and continues with the newest one (`sni_callback`, which
OpenSSL calls whether or not the client names a server). So the next connection uses a new certificate or CA; open
connections continue. Half-written files are ignored until certificate and key match.

If there is a client CA file, clients are asked for a certificate. A client may send none; the handshake fails if this
CA did not sign the certificate that it sends. Sessions are never resumed: with a resumed session a client would stay
trusted after its CA was removed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from kubeletx.api import Clock, InvalidConfig

from .ciphers import openssl_ciphers
from .self_signed import Pair

log = structlog.get_logger(__name__)

LOOK_AGAIN_SECONDS = 10.0
"""Minimum time between two checks whether the files have changed; a handshake starts the check."""
_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}

_Stamp = tuple[int, int, int] | None


class TlsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """TLS settings of the kubelet's API.

    `min_version` and `ciphers`: as in the kubelet's configuration, such as VersionTLS12 and
    TLS_RSA_WITH_AES_128_GCM_SHA256. `client_ca`: CA file for client certificates; None: clients are not asked for
    certificates.
    """

    min_version: str = "VersionTLS12"
    ciphers: tuple[str, ...] = ()
    client_ca: Path | None = None


class ServerTls:
    """Provides the TLS context of the kubelet's API (`context`) and reloads its files when they change.

    `pair`: function that returns the paths of certificate and key. It is called at each check of the files, may
    renew them, and may raise InvalidConfig.
    """

    def __init__(self, plan: TlsPlan, pair: Callable[[], Pair], clock: Clock) -> None:
        """Load the certificates now. Raises InvalidConfig for unusable files."""
        self._plan = plan
        self._pair = pair
        self._clock = clock
        self._stamps: tuple[_Stamp, ...] = ()
        self._failed = False
        self._current = self._load()
        self._looked_at = clock.monotonic()
        self.context = self._current
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_AGAIN_SECONDS:
            self._looked_at = now
            self._look()
        connection.context = self._current

    def _look(self) -> None:
        try:
            if self._stamps != _stamps(self._files()):
                self._current = self._load()
                log.info("Loaded new certificates of the server")
            self._failed = False
        except InvalidConfig as error:
            if not self._failed:
                log.warning("Kept the server's certificates; the new ones cannot be used", err=str(error))
            self._failed = True

    def _files(self) -> tuple[Path, ...]:
        pair, authority = self._pair(), self._plan.client_ca
        return (*pair, authority) if authority is not None else tuple(pair)

    def _load(self) -> ssl.SSLContext:
        stamps = _stamps(self._files())
        context = make_context(self._plan, self._pair())
        self._stamps = stamps
        return context


def make_context(plan: TlsPlan, pair: Pair) -> ssl.SSLContext:
    """Make a server's TLS context. Raises InvalidConfig, which names the flag, for an unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[plan.min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    ciphers = openssl_ciphers(plan.ciphers)
    if ciphers:
        context.set_ciphers(ciphers)
    try:
        context.load_cert_chain(pair.certificate, pair.key, password=_no_passphrase)
    except (OSError, ssl.SSLError) as error:
        raise _bad("--tls-cert-file", f"{pair.certificate} and {pair.key}", error) from error
    if plan.client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(cafile=plan.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise _bad("--client-ca-file", str(plan.client_ca), error) from error
    return context


def _no_passphrase() -> str:
    """Raise OSError for an encrypted key; otherwise OpenSSL asks for its passphrase on the terminal and blocks."""
    raise OSError("the key is encrypted; give one without a passphrase")


def _bad(field: str, what: str, error: OSError) -> InvalidConfig:
    return InvalidConfig(
        field=field, problem=f"{what}: {error.strerror or error}", fix="correct the file or its path"
    )


def _stamps(files: tuple[Path, ...]) -> tuple[_Stamp, ...]:
    return tuple(_stamp(path) for path in files)


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
