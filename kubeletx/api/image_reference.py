"""Parses image references, ``[HOST[:PORT]/]PATH[:TAG][@DIGEST]``, by the rules of Docker, containerd and the kubelet.

Pure. Source: distribution/reference. Examples and their full forms (``D`` is a digest):

    busybox               docker.io/library/busybox:latest
    me/app:1              docker.io/me/app:1
    r.io:5000/app@D       r.io:5000/app@D
    r.io/app:1@D          r.io/app:1@D, the same image as r.io/app@D

The part before the first slash is a host if it has a dot, a colon or a capital letter, or is ``localhost``. A path has
no capital letters.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .errors import InvalidPod

DOCKER_HUB: Final = "docker.io"
INVALID_IMAGE_NAME: Final = "InvalidImageName"

_MAX_REPOSITORY: Final = 255
_DIGEST_DIGITS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_COMPONENT: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH: Final = rf"{_COMPONENT}(?:/{_COMPONENT})*"
_LABEL: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_TAG: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_IDENTIFIER: Final = r"[0-9a-f]{64}"
_HEX: Final = r"[0-9a-f]+"
_SHOWN_DIGEST: Final = r"[a-z0-9]+:[0-9a-f]+"
_FIX: Final = "write [REGISTRY/]NAME[:TAG][@DIGEST]"


class ImageReference(NamedTuple):
    """Parsed image reference, with defaults for a missing registry, ``library/`` and tag.

    `registry`: ``HOST[:PORT]``, such as docker.io. `path`: repository in the registry, such as library/busybox.
    `tag`: empty if the reference has a digest and no tag. `digest`: such as sha256:...; empty if there is none.
    """

    registry: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def repository(self) -> str:
        """Registry and path, as in docker.io/library/busybox."""
        return f"{self.registry}/{self.path}"

    @property
    def canonical(self) -> ImageReference:
        """Reference as containerd pulls and lists it: without the tag if it has a digest (ParseDockerRef)."""
        return self._replace(tag="") if self.digest else self

    def __str__(self) -> str:
        text = f"{self.repository}:{self.tag}" if self.tag else self.repository
        return f"{text}@{self.digest}" if self.digest else text


def parse_image_reference(image: str, field: str = "image") -> ImageReference:
    """Parse an image reference, and add defaults for missing parts.

    The defaults are the registry ``docker.io``, ``library/`` before a one-word name on Docker Hub, and the tag
    ``latest`` if there is neither tag nor digest. `field`: field of the manifest, for the error message. Raises
    InvalidPod with reason InvalidImageName for an invalid reference; its message shows no credentials.
    """
    parsed = _read(image)
    if isinstance(parsed, ImageReference):
        return parsed
    problem, fix = parsed
    shown = without_credentials(image)
    raise InvalidPod(
        field=field,
        problem=f"{shown!r} is not an image reference: {problem}",
        fix=fix,
        reason=INVALID_IMAGE_NAME,
    )


def find_image_reference(text: str) -> ImageReference | None:
    """Parse an image reference as `parse_image_reference` does; None for other text, such as a URL or an image id."""
    parsed = _read(text)
    return parsed if isinstance(parsed, ImageReference) else None


def is_same_image(one: str, other: str) -> bool:
    """Return True if both texts name the same image, such as busybox and docker.io/library/busybox:latest.

    If one of them is not an image reference, they must be equal as text.
    """
    if one == other:
        return True
    first, second = find_image_reference(one), find_image_reference(other)
    return first is not None and second is not None and first.canonical == second.canonical


def without_credentials(image: str) -> str:
    """Return `image` for events and logs: user name, password and query of a URL are replaced by ``...``.

    Other images are returned unchanged.
    """
    base, mark, rest = image.partition("?")
    fragment = rest.partition("#")[2] if mark else ""
    head, at, tail = base.rpartition("@")
    if at and not re.fullmatch(_SHOWN_DIGEST, tail):
        scheme, colon, _ = head.partition("://")
        base = f"{scheme}://...@{tail}" if colon else f"...@{tail}"
    query = "?..." if mark else ""
    return f"{base}{query}#{fragment}" if fragment else f"{base}{query}"


def _read(text: str) -> ImageReference | tuple[str, str]:
    """Parse a reference. Return (problem, fix), which do not quote the text, if it is invalid."""
    name, at, digest = text.partition("@")
    registry, slash, path = name.partition("/")
    if not (slash and _is_host(registry)):
        registry, path = "", name
    path, colon, tag = path.partition(":")
    wrong = _name_problem(registry, path)
    if wrong is None and colon and not tag:
        wrong = "its tag is empty", "write a tag after the colon, or leave the colon out"
    elif wrong is None and colon and not re.fullmatch(_TAG, tag):
        problem = "its tag has more than 128 letters, digits, dots, dashes and underscores, or others"
        wrong = problem, "write [REGISTRY/]NAME:TAG"
    if wrong is None and at:
        wrong = _digest_problem(digest)
    if wrong is not None:
        return _text_problem(text) or wrong
    if registry in ("", f"index.{DOCKER_HUB}", DOCKER_HUB):
        registry, path = DOCKER_HUB, path if "/" in path else f"library/{path}"
    if len(registry) + 1 + len(path) > _MAX_REPOSITORY:
        return f"registry and name have more than {_MAX_REPOSITORY} characters", "shorten it"
    return ImageReference(registry, path, tag if colon or digest else "latest", digest)


def _is_host(first: str) -> bool:
    return "." in first or ":" in first or first == "localhost" or first != first.lower()


def _text_problem(text: str) -> tuple[str, str] | None:
    """Return (problem, fix) if the text is empty, has spaces or control characters, or is a URL; else None."""
    if not text:
        return "it is empty", _FIX
    if any(char.isspace() or not char.isprintable() for char in text):
        return "it holds spaces or control characters", "remove them"
    return ("it is a URL", "write it without a scheme") if "://" in text else None


def _name_problem(registry: str, path: str) -> tuple[str, str] | None:
    if registry and not re.fullmatch(_REGISTRY, registry):
        return "its registry is no HOST[:PORT]", "correct the registry"
    if re.fullmatch(_PATH, path):
        if not registry and re.fullmatch(_IDENTIFIER, path):
            return "64 hexadecimal digits are an image id", "write the image's name"
        return None
    if not path:
        return "it has no name", _FIX
    if re.fullmatch(_PATH, path.lower()):
        return "it has capital letters", "write the name in lower case"
    return (
        "its name holds more than letters and digits with dots, dashes, underscores and slashes between",
        _FIX,
    )


def _digest_problem(digest: str) -> tuple[str, str] | None:
    algorithm, _, digits = digest.partition(":")
    length = _DIGEST_DIGITS.get(algorithm)
    if length is None:
        return "the part after @ is not a digest", "write @sha256: and 64 hexadecimal digits"
    if len(digits) != length or not re.fullmatch(_HEX, digits):
        problem = f"its digest has not {length} hexadecimal digits in lower case"
        return problem, f"write @{algorithm}: and {length} of them"
    return None
