"""Finds the registry credentials that match an image. Pure. Source: kubelet, pkg/credentialprovider/keyring.go.

A docker config names registries by URL or host, with an optional path; the parts of the host may be globs. Every
matching entry is a candidate, the one with the longest path first. An image of the default registry (Docker Hub)
without a match gets the entries of index.docker.io.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping

import msgspec

from kubeletx.api import find_image_reference
from kubeletx.api.image_reference import DOCKER_HUB

_DISK_FILE = re.compile(r"\.(qcow2|img|raw)(\.(xz|gz|zst))?$", re.IGNORECASE)
_DEFAULT_KEYS = ("index.docker.io", "docker.io", "registry-1.docker.io")


class RegistryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Credential for one registry, from a docker config or a credential provider. The repr hides the secrets.

    `server`: key of the docker config: host or URL, with an optional path. `account`: UID, namespace and name of the
    service account for which a credential provider returned it; None if it is not bound to an account.
    """

    server: str
    username: str = ""
    password: str = ""
    auth: str = ""
    identity_token: str = ""
    registry_token: str = ""
    helper: str = ""
    account: tuple[str, str, str] | None = None

    def __repr__(self) -> str:
        return f"RegistryEntry(server={self.server!r}, helper={self.helper!r}, ...)"


def key_of(server: str) -> str:
    """Return host and path of a key of a docker config, without the scheme and without a leading /v1/ or /v2/."""
    text = server.removeprefix("https://").removeprefix("http://")
    host, slash, path = text.partition("/")
    if path in ("v1", "v2"):
        path = ""
    elif path.startswith(("v1/", "v2/")):
        path = path[3:]
    return f"{host}/{path}" if slash and path else host


def matching(entries: Iterable[RegistryEntry], image: str) -> tuple[RegistryEntry, ...]:
    """Return the entries that fit the image, the most specific first."""
    repository = repository_of(image)
    by_key: dict[str, list[RegistryEntry]] = {}
    for entry in entries:
        by_key.setdefault(key_of(entry.server), []).append(entry)
    matches = [e for key in sorted(by_key, reverse=True) if fits(key, repository) for e in by_key[key]]
    if not matches and repository.startswith(f"{DOCKER_HUB}/"):
        matches = [entry for key in _DEFAULT_KEYS for entry in by_key.get(key, ())]
    return tuple(matches)


def helper_server(helpers: Mapping[str, str], image: str) -> str:
    """Return the key of ``credHelpers`` that fits the image best; empty if none fits.

    `helpers`: content of ``credHelpers``, server to the name of its helper.
    """
    entries = [RegistryEntry(server=server) for server in helpers]
    best = matching(entries, image)
    return best[0].server if best else ""


def registry_of(image: str) -> str:
    """Return the host of the image's registry, as credential helpers expect it."""
    host = repository_of(image).partition("/")[0]
    return "https://index.docker.io/v1/" if host == DOCKER_HUB else host


def file_server(image: str) -> str:
    """Return ``HOST[:PORT]`` of an image that is a file behind a URL; empty for an image in a registry."""
    scheme, mark, rest = image.partition("://")
    if mark and scheme in ("http", "https"):
        return rest.partition("/")[0].lower()
    host, slash, path = image.partition("/")
    return host.lower() if slash and not mark and _DISK_FILE.search(path.partition("#")[0]) else ""


def repository_of(image: str) -> str:
    """Return registry and path of the image, without tag and digest.

    For a URL, as a machine's image may be, the scheme is removed; so is the prefix ``oci:``.
    """
    for scheme in ("https://", "http://"):
        if image.startswith(scheme):
            return image.removeprefix(scheme)
    image = image.removeprefix("oci:")
    reference = find_image_reference(image)
    return reference.repository if reference is not None else image


def fits(key: str, repository: str) -> bool:
    """Return True if the pattern `key`, HOST[:PORT][/PATH], matches the repository.

    Each part of the host may be a glob; the path must be a prefix; the port must be equal.
    """
    host, slash, path = key.partition("/")
    image_host, _, image_path = repository.partition("/")
    if slash and not image_path.startswith(path):
        return False
    name, _, port = host.partition(":")
    image_name, _, image_port = image_host.partition(":")
    if port != image_port:
        return False
    parts, image_parts = name.split("."), image_name.split(".")
    return len(parts) == len(image_parts) and all(
        fnmatch.fnmatchcase(mine, pattern) for pattern, mine in zip(parts, image_parts, strict=True)
    )
