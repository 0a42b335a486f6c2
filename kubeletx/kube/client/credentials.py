"""Credentials of requests: a TLS context and a bearer token, from files or from a credential program.

Certificates and tokens are replaced while the agent runs (rotation, projected tokens). Files are therefore checked
again every few seconds, and after the server refused the credentials. A new certificate makes a new TLS context, which
new connections use; open connections continue. While a file is missing, empty or half-written, the content that was
read last stays in use. Keys given as data reach OpenSSL through a file in memory, never on disk.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from kubeletx.api import Clock, InvalidConfig, PermissionDenied, TimedOut
from kubeletx.linux.programs import run_program

from ..types.meta import ApiStruct
from .access import ClusterAccess, ExecCredential, is_token

log = structlog.get_logger(__name__)

LOOK_AGAIN_SECONDS = 10.0
EXEC_SECONDS = 60.0
EARLY_SECONDS = 30.0
"""A credential is renewed this long before it expires."""


_Stamp = tuple[int, int, int] | None


class _ExecStatus(ApiStruct, frozen=True, kw_only=True):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecAnswer(ApiStruct, frozen=True, kw_only=True):
    status: _ExecStatus = _ExecStatus()


class ClientCredentials:
    """TLS context and bearer token of one `ClusterAccess`. `refresh` updates them. Errors name the file or program."""

    def __init__(self, access: ClusterAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._looked_at = float("-inf")
        self._stamps: tuple[_Stamp, ...] = ()
        self._tls: ssl.SSLContext | None = None
        self._token = access.token
        self._problem = ""
        self._exec_until: datetime | None = None
        self._ran_at = float("-inf")
        self._given: tuple[bytes, bytes] | None = None
        self._alone = asyncio.Lock()

    async def refresh(self) -> None:
        """Update the credentials, if that is due, from files that changed and from the credential program.

        Files are checked every `LOOK_AGAIN_SECONDS`. The program runs at the first call, after `forget`, and
        `EARLY_SECONDS` before its credential expires. Raises InvalidConfig for unusable files; while an
        earlier TLS context exists, they are only logged. Raises PermissionDenied if the program fails.
        """
        async with self._alone:
            if self._access.exec is not None and self._is_exec_due():
                await self._run(self._access.exec)
            now = self._clock.monotonic()
            if now - self._looked_at < LOOK_AGAIN_SECONDS:
                return
            self._looked_at = now
            stamps = tuple(_stamp(path) for path in self._files())
            if stamps != self._stamps or self._tls is None:
                self._load_again()
                self._stamps = stamps

    def forget(self) -> None:
        """Make the next `refresh` check the files and run the program at once.

        Call it after the server refused the credentials. Files that did not change are not read again.
        """
        self._looked_at = float("-inf")
        self._ran_at = float("-inf")

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS context that the last `refresh` made; None before the first."""
        return self._tls

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that carry the bearer token; empty without a token."""
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _files(self) -> list[Path]:
        access = self._access
        return [
            material
            for material in (access.ca, access.certificate, access.key, access.token_file)
            if isinstance(material, Path)
        ]

    def _load_again(self) -> None:
        try:
            self._load()
        except InvalidConfig as error:
            if self._tls is None:
                raise
            if str(error) != self._problem:
                log.warning("Kept the credentials; the new ones cannot be used", err=str(error))
            self._problem = str(error)
        else:
            self._problem = ""

    def _load(self) -> None:
        access, token = self._access, self._token
        if access.token_file is not None:
            token = _read_token(access.token_file)
        certificate: Path | bytes | None = access.certificate
        key: Path | bytes | None = access.key
        if self._given is not None:
            certificate, key = self._given
        self._tls = make_context(access, certificate, key)
        self._token = token

    def _is_exec_due(self) -> bool:
        if self._clock.monotonic() - self._ran_at < LOOK_AGAIN_SECONDS:
            return False  # if the clock is wrong, each new credential may look expired
        if self._ran_at == float("-inf"):
            return True
        until = self._exec_until
        return until is not None and (until - self._clock.now()).total_seconds() < EARLY_SECONDS

    async def _run(self, program: ExecCredential) -> None:
        spec: dict[str, object] = {"interactive": False}
        if program.is_told_cluster:
            spec["cluster"] = _cluster(self._access, program)
        request = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **dict(program.env),
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        }
        try:
            result = await run_program(
                [program.command, *program.args], seconds=EXEC_SECONDS, environment=environment
            )
        except OSError as error:
            raise PermissionDenied(
                f"cannot run {program.command} for credentials: {error.strerror}; correct user.exec.command"
            ) from error
        except TimedOut as error:
            raise PermissionDenied(
                f"{program.command} gave no credentials within {EXEC_SECONDS:g} s"
            ) from error
        if result.exit_code != 0:
            words = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise PermissionDenied(
                f"{program.command} ended with {result.exit_code}: {words or 'no message'}"
            )
        try:
            status = msgspec.json.decode(result.stdout, type=_ExecAnswer).status
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PermissionDenied(f"{program.command} printed no ExecCredential: {error}") from error
        if not is_token(status.token.strip()):
            raise PermissionDenied(f"{program.command} printed a token that is not one line of text")
        self._token = status.token.strip()
        if status.client_certificate_data:
            given = (status.client_certificate_data.encode(), status.client_key_data.encode())
            if given != self._given:
                self._given, self._tls = given, None
                self._looked_at = float("-inf")
        self._exec_until = status.expiration_timestamp
        self._ran_at = self._clock.monotonic()


def _cluster(access: ClusterAccess, program: ExecCredential) -> dict[str, object]:
    """Return the field ``cluster`` of the request to a credential program: the server's address, CA and settings.

    Source: client.authentication.k8s.io/v1 Cluster.
    """
    ca = _read(access.ca) if isinstance(access.ca, Path) else access.ca
    reported = {
        "tls-server-name": access.tls_server_name,
        "insecure-skip-tls-verify": access.insecure,
        "certificate-authority-data": base64.b64encode(ca or b"").decode(),
        "proxy-url": access.proxy_url,
        "config": program.cluster_config,
    }
    return {"server": access.server, **{name: value for name, value in reported.items() if value}}


def make_context(
    access: ClusterAccess, certificate: Path | bytes | None, key: Path | bytes | None
) -> ssl.SSLContext:
    """Make a client's TLS context. Raises InvalidConfig for files that are missing or that OpenSSL refuses.

    `certificate`, `key`: path or PEM text; both None for a client without a certificate. The CA and the
    `insecure` setting come from `access`.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.ca is not None:
        # trust only the cluster's own CA, not the system's
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        text = access.ca if isinstance(access.ca, bytes) else _read(access.ca)
        try:
            context.load_verify_locations(cadata=text.decode())
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise _unusable(access.ca, "the cluster's authority") from error
    if certificate is not None and key is not None:
        try:
            with _OpenableName(certificate) as certificate_name, _OpenableName(key) as key_name:
                # Without a password, OpenSSL asks for one at the terminal.
                context.load_cert_chain(certificate_name, key_name, password="")
        except (ssl.SSLError, ValueError) as error:
            raise _unusable(certificate, "a certificate and its key, without a passphrase,") from error
    return context


class _OpenableName:
    """Context manager that yields a file name for OpenSSL: the given path, or the name of a file in memory.

    The file in memory contains the given bytes and exists only inside the block.
    """

    def __init__(self, material: Path | bytes) -> None:
        self._material = material
        self._descriptor = -1

    def __enter__(self) -> str:
        if isinstance(self._material, Path):
            if not self._material.exists():
                raise _missing(self._material)
            return str(self._material)
        self._descriptor = os.memfd_create("kubeletx-key")
        os.write(self._descriptor, self._material)
        return f"/proc/self/fd/{self._descriptor}"

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _missing(path) from error


def _read_token(path: Path) -> str:
    try:
        token = _read(path).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if not token or not is_token(token):
        raise InvalidConfig(obj=str(path), field="", problem="holds no token", fix="write one line into it")
    return token


def _missing(path: Path) -> InvalidConfig:
    return InvalidConfig(obj=str(path), field="", problem="cannot be read", fix="correct the kubeconfig")


def _unusable(material: Path | bytes, what: str) -> InvalidConfig:
    name = str(material) if isinstance(material, Path) else "the kubeconfig"
    return InvalidConfig(obj=name, field="", problem=f"does not hold {what} in PEM form", fix="replace it")
