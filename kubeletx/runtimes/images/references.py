"""Image references: ``[HOST[:PORT]/]PATH[:TAG][@DIGEST]``. Pure. Source: distribution/reference grammar."""

from __future__ import annotations

import re
from typing import NamedTuple

from kubeletx.api import InvalidPod

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = (
    r"(?:(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
    r"(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
)
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)

DOCKER_HUB = "docker.io"
INVALID_IMAGE_NAME = "InvalidImageName"


class Reference(NamedTuple):
    """A parsed reference. `repository`: with registry, as in docker.io/library/busybox; `tag`, `digest`: may be empty."""

    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        text = f"{self.repository}:{self.tag}" if self.tag else self.repository
        return f"{text}@{self.digest}" if self.digest else text


def parse(image: str, field: str = "image") -> Reference:
    """Parse the reference, adding the default registry, ``library/`` and the tag ``latest``.

    Raises InvalidPod with reason InvalidImageName.
    """
    match = _REFERENCE.fullmatch(image)
    if match is None or len(match["name"]) > 255:
        raise InvalidPod(
            field=field,
            problem=f"{image!r} is not an image reference",
            fix="write [REGISTRY/]NAME[:TAG][@DIGEST] in lower case",
            reason=INVALID_IMAGE_NAME,
        )
    tag, digest = match["tag"] or "", match["digest"] or ""
    if not tag and not digest:
        tag = "latest"
    return Reference(_with_registry(match["name"]), tag, digest)


def find(text: str) -> Reference | None:
    """Parse the reference; None if the text is invalid."""
    try:
        return parse(text)
    except InvalidPod:
        return None


def is_same(one: str, other: str) -> bool:
    """Return True if both name the same image; invalid references are compared as text."""
    return one == other or ((meant := find(one)) is not None and meant == find(other))


def _with_registry(name: str) -> str:
    first, slash, rest = name.partition("/")
    if not slash:
        return f"{DOCKER_HUB}/library/{name}"
    if "." in first or ":" in first or first == "localhost":
        if first == "index.docker.io":
            first = DOCKER_HUB
        if first == DOCKER_HUB and "/" not in rest:
            rest = f"library/{rest}"
        return f"{first}/{rest}"
    return f"{DOCKER_HUB}/{name}"
