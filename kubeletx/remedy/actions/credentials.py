"""Secrets of a method: read when it runs, from Secrets of the cluster and from URLs, and never stored.

A secret reaches an agent on its standard input. What is not one line, such as an SSH key, becomes a file in memory that
only this process's user can open; the agent gets its path. It is gone when the method has ended, or this process.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kubeletx.api.errors import InvalidConfig, NotFound, TimedOut, Unavailable
from kubeletx.kube.client.requests import KubeClient
from kubeletx.kube.client.resources import SECRETS
from kubeletx.kube.types.objects import Secret
from kubeletx.linux.redaction import Redactor

from ..model import FenceMethod
from ..properties import is_secret

SecretReader: TypeAlias = Callable[[str], Awaitable[Mapping[str, bytes]]]
"""Returns the decoded data of the Secret with this name, in the controller's namespace. Raises KubeletxError."""
KeyFetcher: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Returns the content of a URL. Raises KubeletxError."""

FROM_URL: Final = "@url"
MOST_KEY_BYTES: Final = 64 * 1024
FETCH_SECONDS: Final = 20.0
_FILES: Final = frozenset({"identity_file", "serviceaccount", "cacert", "openrc", "kubeconfig"})
"""Parameters that name a file, although its content may be one line."""


class Credentials(msgspec.Struct, frozen=True):
    """Parameters of a method with its secrets, and the redactor of its messages. Its repr shows no value."""

    parameters: dict[str, str]
    redactor: Redactor

    def __repr__(self) -> str:
        return f"Credentials({', '.join(self.parameters)})"


async def no_secrets(name: str) -> Mapping[str, bytes]:
    """Read no Secret: without a cluster there is none."""
    raise NotFound(f"Secret {name}: there is no cluster to read it from")


def secrets_of(client: KubeClient, namespace: str) -> SecretReader:
    """Return the reader of a namespace's Secrets."""

    async def read(name: str) -> Mapping[str, bytes]:
        return (await client.get(SECRETS.path(namespace, name), Secret)).data

    return read


@asynccontextmanager
async def credentials_of(
    method: FenceMethod, read_secret: SecretReader, fetch: KeyFetcher
) -> AsyncIterator[Credentials]:
    """Yield the parameters of a method with all secrets; its files exist until the context ends.

    Of `FenceMethod.secrets` a later one overrides earlier ones. ``KEY@url`` names the URL of KEY's content. Raises
    InvalidConfig for a key that is in a Secret and among the parameters, and what the readers raise.
    """
    secret: dict[str, bytes] = {}
    for name in method.secrets:
        try:
            found = await read_secret(name)
        except NotFound:
            if method.secrets_optional:
                continue
            raise
        for key, data in found.items():
            if key in method.parameters or f"{key}{FROM_URL}" in method.parameters:
                problem = f"is also in Secret {name}"
                raise InvalidConfig(obj=method.name, field=key, problem=problem, fix="keep one of them")
            secret[key] = data
    values = dict(method.parameters)
    for key in method.parameters:
        if key.endswith(FROM_URL):
            secret[key.removesuffix(FROM_URL)] = await fetch(values.pop(key))
    shown = {key: value.encode() for key, value in values.items() if is_secret(key)}
    with ExitStack() as files:
        values |= {key: _value(key, data, files) for key, data in secret.items()}
        yield Credentials(values, Redactor(secret | shown))


async def fetch_key(url: str, *, seconds: float = FETCH_SECONDS) -> bytes:
    """Return the content of a URL, without following redirects. Raises InvalidConfig, Unavailable and TimedOut.

    Errors show no user, password or query of the URL.
    """
    import aiohttp

    parts = urlsplit(url)
    where = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidConfig(field=where or "URL", problem="is no URL of HTTP", fix="write https://HOST/PATH")
    try:
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise Unavailable(f"{where}: the answer is {response.status} {response.reason}")
            data = bytearray()
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > MOST_KEY_BYTES:
                    raise Unavailable(f"{where}: more than {MOST_KEY_BYTES} bytes; it is not a key")
    except TimeoutError as error:
        raise TimedOut(f"{where}: no answer within {seconds:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # The text of some errors has the whole URL.
        raise Unavailable(f"{where}: {type(error).__name__}") from error
    if not data.strip():
        raise Unavailable(f"{where}: the answer is empty")
    return bytes(data)


def _value(key: str, data: bytes, files: ExitStack) -> str:
    """Return a secret's text, or the path of a file with it."""
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        text = "\n"
    return (
        text
        if key.replace("-", "_") not in _FILES and not re.search(r"[\r\n\0]", text)
        else _file(data, files)
    )


def _file(data: bytes, files: ExitStack) -> str:
    """Return the path of a file in memory.

    ssh refuses a key that others can read. The path names this process: programs that an agent starts do not inherit
    its descriptors.
    """
    descriptor = os.memfd_create("kubeletx-remedy", os.MFD_CLOEXEC)
    files.callback(os.close, descriptor)
    os.fchmod(descriptor, 0o600)
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    return f"/proc/{os.getpid()}/fd/{descriptor}"
