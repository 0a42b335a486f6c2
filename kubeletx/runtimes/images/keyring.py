"""Registry credentials that match an image. Pure. Source: kubelet, pkg/credentialprovider/keyring.go.

A docker config names registries by URL or host, with an optional path; host parts may be globs. Every matching entry is
a candidate, the longest path first; an image of the default registry also matches the entry of index.docker.io.
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
    """One registry of a docker config. Masks its secrets. `helper`: a program to ask instead.

    `account`: uid, namespace and name of the service account that a provider made it for.
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
    """Host and path of a config's key, without scheme and without a leading /v1/ or /v2/."""
    text = server.removeprefix("https://").removeprefix("http://")
    host, slash, path = text.partition("/")
    if path in ("v1", "v2"):
        path = ""
    elif path.startswith(("v1/", "v2/")):
        path = path[3:]
    return f"{host}/{path}" if slash and path else host


def matching(entries: Iterable[RegistryEntry], image: str) -> tuple[RegistryEntry, ...]:
    """The entries that fit the image, best first."""
    repository = repository_of(image)
    by_key: dict[str, list[RegistryEntry]] = {}
    for entry in entries:
        by_key.setdefault(key_of(entry.server), []).append(entry)
    found = [e for key in sorted(by_key, reverse=True) if fits(key, repository) for e in by_key[key]]
    if not found and repository.startswith(f"{DOCKER_HUB}/"):
        found = [entry for key in _DEFAULT_KEYS for entry in by_key.get(key, ())]
    return tuple(found)


def helper_server(helpers: Mapping[str, str], image: str) -> str:
    """The ``credHelpers`` server whose helper serves the image; empty if there is none."""
    entries = [RegistryEntry(server=server) for server in helpers]
    found = matching(entries, image)
    return found[0].server if found else ""


def registry_of(image: str) -> str:
    """The registry's host, as credential helpers expect it."""
    host = repository_of(image).partition("/")[0]
    return "https://index.docker.io/v1/" if host == DOCKER_HUB else host


def file_server(image: str) -> str:
    """``HOST[:PORT]`` of an image that is a file behind a URL; empty for a registry image."""
    scheme, mark, rest = image.partition("://")
    if mark and scheme in ("http", "https"):
        return rest.partition("/")[0].lower()
    host, slash, path = image.partition("/")
    return host.lower() if slash and not mark and _DISK_FILE.search(path.partition("#")[0]) else ""


def repository_of(image: str) -> str:
    """Registry and path without tag and digest.

    A machine's image may be a URL, or have the prefix ``oci:``.
    """
    for scheme in ("https://", "http://"):
        if image.startswith(scheme):
            return image.removeprefix(scheme)
    image = image.removeprefix("oci:")
    found = find_image_reference(image)
    return found.repository if found is not None else image


def fits(key: str, repository: str) -> bool:
    """Return True if the pattern HOST[:PORT][/PATH] matches: globs in each part of the host, the path is a prefix."""
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
