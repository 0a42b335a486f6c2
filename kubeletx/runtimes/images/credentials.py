"""The node's registry credentials: its docker config, and the credential helpers that it names.

The config is read where the kubelet looks for it; the first file that exists and can be read counts. It is read
again when it changed. A helper is a program ``docker-credential-NAME`` that gets the server's name and answers with
a secret; it has a deadline, and a failing one is logged and skipped. Secrets are never logged or printed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from kubeletx.api import ImageAuth

from ..host.programs import ProgramFailed, run_program
from .keyring import RegistryEntry, file_server, helper_server, matching, registry_of

log = structlog.get_logger(__name__)

HELPER_SECONDS = 10.0
_HELPER_CACHE_SECONDS = 60.0
_NO_CREDENTIALS = "credentials not found"


class DockerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields of a docker config; an old ``.dockercfg`` has only the content of `auths`."""

    auths: dict[str, dict[str, Any]] = {}
    cred_helpers: dict[str, str] = {}
    creds_store: str = ""

    def __repr__(self) -> str:
        return f"DockerConfig(servers={sorted(self.auths)}, ...)"


def default_paths(root: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Default paths, as in the kubelet: its root directory, the working directory, the home and ``/``."""
    home = Path(environment.get("HOME") or "/root")
    places = (root, Path(), home / ".docker", Path("/.docker"))
    old_places = (root, Path(), home, Path("/"))
    return (*(p / "config.json" for p in places), *(p / ".dockercfg" for p in old_places))


class NodeCredentials:
    """Credentials from the docker config. `paths`: files to read, in order of preference."""

    def __init__(self, paths: Sequence[Path], *, helper_seconds: float = HELPER_SECONDS) -> None:
        self._paths = tuple(paths)
        self._helper_seconds = helper_seconds
        self._stamp: tuple[object, ...] | None = None
        self._refused: dict[Path, tuple[object, ...]] = {}
        self._config = DockerConfig()
        self._entries: tuple[RegistryEntry, ...] = ()
        self._answers: dict[tuple[str, str], tuple[float, ImageAuth | None]] = {}

    async def lookup(self, image: str) -> Sequence[ImageAuth]:
        """Credentials that may fit the image, best first: helpers for its registry, entries, the credential store."""
        self._reload()
        config = self._config
        found: list[ImageAuth] = []
        if server := helper_server(config.cred_helpers, image):
            found += await self._ask(config.cred_helpers[server], server, image)
        found += [auth_of(entry, image) for entry in matching(self._entries, image)]
        if not found and config.creds_store:
            found += await self._ask(config.creds_store, registry_of(image), image)
        return found

    # --- files ---

    def _reload(self) -> None:
        for path in self._paths:
            try:
                status = path.stat()
                stamp = (path, status.st_mtime_ns, status.st_size, status.st_ino)
                if stamp == self._stamp:
                    return
                if stamp == self._refused.get(path):
                    continue
                config = parse_config(path.read_bytes(), is_old=path.name == ".dockercfg")
            except OSError:
                continue
            except (ValueError, msgspec.ValidationError) as error:
                self._refused[path] = stamp
                log.warning(
                    "Ignored registry credentials that cannot be read",
                    path=str(path),
                    err=type(error).__name__,
                )
                continue
            self._stamp, self._config, self._entries = stamp, config, entries_of(config)
            self._answers.clear()
            return
        self._stamp, self._config, self._entries = None, DockerConfig(), ()

    # --- helpers ---

    async def _ask(self, helper: str, server: str, image: str) -> list[ImageAuth]:
        now = asyncio.get_running_loop().time()
        cached = self._answers.get((helper, server))
        if cached is None or now - cached[0] > _HELPER_CACHE_SECONDS:
            cached = now, await self._run_helper(helper, server)
            self._answers[helper, server] = cached
        return [_for_file(cached[1], image)] if cached[1] is not None else []

    async def _run_helper(self, helper: str, server: str) -> ImageAuth | None:
        program = shutil.which(f"docker-credential-{helper}")
        if program is None:
            log.warning("Did not find credential helper", helper=f"docker-credential-{helper}", server=server)
            return None
        try:
            output = await run_program(program, "get", stdin=server.encode(), seconds=self._helper_seconds)
            answer = msgspec.json.decode(output, type=HelperAnswer)
        except (OSError, TimeoutError, ProgramFailed, msgspec.DecodeError, UnicodeDecodeError) as error:
            if _NO_CREDENTIALS not in str(error):
                log.warning(
                    "Failed to ask credential helper", helper=helper, server=server, err=_reason(error)
                )
            return None
        if answer.username == "<token>":
            return ImageAuth(identity_token=answer.secret)
        return ImageAuth(username=answer.username, password=answer.secret)


class HelperAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a credential helper. `username` ``<token>``: `secret` is an identity token, not a password."""

    username: str = msgspec.field(name="Username")
    secret: str = msgspec.field(name="Secret")

    def __repr__(self) -> str:
        return "HelperAnswer(...)"


def parse_config(data: bytes, *, is_old: bool) -> DockerConfig:
    """Parse a docker config file. `is_old`: it is a ``.dockercfg``. Raises ValueError."""
    raw = msgspec.json.decode(data)
    if is_old:
        raw = {"auths": raw}
    return msgspec.convert(raw, DockerConfig)


def entries_of(config: DockerConfig) -> tuple[RegistryEntry, ...]:
    """The config's entries that hold a secret; entries that cannot be decoded are logged and left out."""
    found: list[RegistryEntry] = []
    for server, fields in config.auths.items():
        username, password = str(fields.get("username") or ""), str(fields.get("password") or "")
        auth = str(fields.get("auth") or "")
        if auth and not username:
            try:
                username, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                log.warning("Ignored a registry credential that is not base64", server=server)
                continue
            password = password.rstrip("\0")
        entry = RegistryEntry(
            server=server,
            username=username,
            password=password,
            identity_token=str(fields.get("identitytoken") or ""),
            registry_token=str(fields.get("registrytoken") or ""),
        )
        if entry.username or entry.identity_token or entry.registry_token:
            found.append(entry)
    return tuple(found)


def pull_secret_auths(data: bytes, image: str, *, is_old: bool = False) -> tuple[ImageAuth, ...]:
    """Credentials of a pull secret (``.dockerconfigjson``, or the old ``.dockercfg``) that fit the image."""
    entries = matching(entries_of(parse_config(data, is_old=is_old)), image)
    return tuple(auth_of(entry, image) for entry in entries)


def auth_of(entry: RegistryEntry, image: str) -> ImageAuth:
    """The credential without its server, as the kubelet sends it: it was already chosen for this image.

    containerd would parse the server as a URL (``127.0.0.1:5000`` is none) and ignore the credential on a mirror.
    """
    auth = ImageAuth(
        username=entry.username,
        password=entry.password,
        identity_token=entry.identity_token,
        registry_token=entry.registry_token,
    )
    return _for_file(auth, image, "http" if entry.server.startswith("http://") else "https")


def _for_file(auth: ImageAuth, image: str, scheme: str = "https") -> ImageAuth:
    """The credential with its server, for an image that is a file behind a URL, as a machine's may be.

    No registry asks for credentials there, and the sender must know to which server they belong. The credential is sent
    without TLS only if `scheme` is http, as in the docker config.
    """
    server = file_server(image)
    return replace(auth, server_address=f"{scheme}://{server}") if server else auth


def _reason(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else (str(error) or type(error).__name__)
