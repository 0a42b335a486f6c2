"""`NodeCredentials`: the node's registry credentials, from its docker config and the credential helpers named in it.

The config is read from the same paths as by the kubelet: the first file that exists and can be parsed is used. It is
read again when it changed. A helper is a program ``docker-credential-NAME`` that gets the server's name on its input
and prints a secret. A helper that fails or exceeds its deadline is logged and skipped. Secrets are never logged.
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

from kubeletx.api import ImageAuth, KubeletxError
from kubeletx.linux.programs import run_program

from .keyring import RegistryEntry, file_server, helper_server, matching, registry_of

log = structlog.get_logger(__name__)

HELPER_SECONDS = 10.0
HELPER_RETRY_SECONDS = 5.0
"""Seconds without another run of a helper that failed; less than the first back-off of a pull."""
_HELPER_CACHE_SECONDS = 60.0
_NO_CREDENTIALS = "credentials not found"


class DockerConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields of a docker config file. A file of the old format ``.dockercfg`` consists of the content of `auths`."""

    auths: dict[str, dict[str, Any]] = {}
    cred_helpers: dict[str, str] = {}
    creds_store: str = ""

    def __repr__(self) -> str:
        return f"DockerConfig(servers={sorted(self.auths)}, ...)"


def default_paths(root: Path, environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the default paths of docker configs, as in the kubelet, in order of preference.

    They are ``config.json`` and then ``.dockercfg`` in the agent's root directory `root`, the working directory, the
    home directory and ``/``.
    """
    home = Path(environment.get("HOME") or "/root")
    places = (root, Path(), home / ".docker", Path("/.docker"))
    old_places = (root, Path(), home, Path("/"))
    return (*(p / "config.json" for p in places), *(p / ".dockercfg" for p in old_places))


class NodeCredentials:
    """Finds registry credentials in the node's docker config.

    `paths`: docker config files, in order of preference. `helper_seconds`: deadline of one run of a credential helper.
    `retry_seconds`: time after a failed run in which the helper counts as having no credentials.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        helper_seconds: float = HELPER_SECONDS,
        retry_seconds: float = HELPER_RETRY_SECONDS,
    ) -> None:
        self._paths = tuple(paths)
        self._helper_seconds = helper_seconds
        self._retry_seconds = retry_seconds
        self._stamp: tuple[object, ...] | None = None
        self._refused: dict[Path, tuple[object, ...]] = {}
        self._config = DockerConfig()
        self._entries: tuple[RegistryEntry, ...] = ()
        self._answers: dict[tuple[str, str], tuple[float, ImageAuth | None]] = {}

    async def lookup(self, image: str) -> Sequence[ImageAuth]:
        """Return the credentials that may fit the image, best first.

        The order is: the credential helper for its registry, the config's entries, and if there are none of both, the
        credential store (``credsStore``).
        """
        self._reload()
        config = self._config
        auths: list[ImageAuth] = []
        if server := helper_server(config.cred_helpers, image):
            auths += await self._ask(config.cred_helpers[server], server, image)
        auths += [auth_of(entry, image) for entry in matching(self._entries, image)]
        if not auths and config.creds_store:
            auths += await self._ask(config.creds_store, registry_of(image), image)
        return auths

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
        now = asyncio.get_running_loop().time
        until, auth = self._answers.get((helper, server), (0.0, None))
        if now() >= until:
            auth, seconds = await self._run_helper(helper, server)
            self._answers[helper, server] = now() + seconds, auth
        return [_for_file(auth, image)] if auth is not None else []

    async def _run_helper(self, helper: str, server: str) -> tuple[ImageAuth | None, float]:
        """Return the helper's credential, and for how many seconds it is valid."""
        program = shutil.which(f"docker-credential-{helper}")
        if program is None:
            log.warning("Did not find credential helper", helper=f"docker-credential-{helper}", server=server)
            return None, _HELPER_CACHE_SECONDS
        try:
            result = await run_program([program, "get"], stdin=server.encode(), seconds=self._helper_seconds)
            if result.exit_code != 0:
                raise result.problem(server)
            answer = msgspec.json.decode(result.stdout, type=HelperAnswer)
        except (
            OSError,
            KubeletxError,
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ) as error:
            if _NO_CREDENTIALS in str(error):
                return None, _HELPER_CACHE_SECONDS
            log.warning("Failed to ask credential helper", helper=helper, server=server, err=_reason(error))
            return None, self._retry_seconds  # a failure is not an answer, as for the kubelet's providers
        if answer.username == "<token>":
            return ImageAuth(identity_token=answer.secret), _HELPER_CACHE_SECONDS
        return ImageAuth(username=answer.username, password=answer.secret), _HELPER_CACHE_SECONDS


class HelperAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Output of a credential helper. If `username` is ``<token>``, `secret` is an identity token, not a password."""

    username: str = msgspec.field(name="Username")
    secret: str = msgspec.field(name="Secret")

    def __repr__(self) -> str:
        return "HelperAnswer(...)"


def parse_config(data: bytes, *, is_old: bool) -> DockerConfig:
    """Parse a docker config file. `is_old`: the file has the format ``.dockercfg``. Raises ValueError."""
    try:
        raw = msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if is_old:
        raw = {"auths": raw}
    return msgspec.convert(raw, DockerConfig)


def entries_of(config: DockerConfig) -> tuple[RegistryEntry, ...]:
    """Return the config's entries that contain a secret; entries that cannot be decoded are logged and left out."""
    entries: list[RegistryEntry] = []
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
            entries.append(entry)
    return tuple(entries)


def pull_secret_auths(data: bytes, image: str, *, is_old: bool = False) -> tuple[ImageAuth, ...]:
    """Return the credentials of a pull secret that fit the image.

    `data`: value of ``.dockerconfigjson`` or, if `is_old`, of ``.dockercfg``. Raises ValueError.
    """
    entries = matching(entries_of(parse_config(data, is_old=is_old)), image)
    return tuple(auth_of(entry, image) for entry in entries)


def auth_of(entry: RegistryEntry, image: str) -> ImageAuth:
    """Convert a config entry to the credential for a pull of the image.

    The server is left out, as by the kubelet: containerd would parse it as a URL (``127.0.0.1:5000`` is none) and would
    ignore the credential on a mirror. Only for an image that is a file behind a URL it is included.
    """
    auth = ImageAuth(
        username=entry.username,
        password=entry.password,
        identity_token=entry.identity_token,
        registry_token=entry.registry_token,
    )
    return _for_file(auth, image, "http" if entry.server.startswith("http://") else "https")


def _for_file(auth: ImageAuth, image: str, scheme: str = "https") -> ImageAuth:
    """Return the credential with its server if the image is a file behind a URL, as a machine's may be; else unchanged.

    The downloader of such a file must know to which server the credential belongs. It sends the credential without TLS
    only if `scheme` is http, as in the docker config.
    """
    server = file_server(image)
    return replace(auth, server_address=f"{scheme}://{server}") if server else auth


def _reason(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else (str(error) or type(error).__name__)
