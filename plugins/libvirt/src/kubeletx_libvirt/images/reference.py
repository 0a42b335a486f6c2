"""Parses image references of machines. Pure (DECISIONS 29 in docs/decisions/answers.md).

| written | meaning |
|---|---|
| a key of the alias table | the reference in the table, which is not itself an alias |
| ``http://...``, ``https://...`` | a URL |
| ``file:///PATH``, ``/PATH`` | a file of this node |
| ``oci:REF`` | an image of a registry that contains the disk under ``/disk`` |
| ``HOST/PATH.qcow2`` (.img, .raw; then .xz, .gz, .zst) | https |
| anything else | as ``oci:`` |

``#sha256=HEX`` or ``#sha512=HEX`` after a URL or a path pins the file as it is published, before it is
unpacked. An OCI image is pinned with ``@sha256:HEX``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from kubeletx.api import InvalidPod, find_image_reference, without_credentials

INVALID_IMAGE_NAME = "InvalidImageName"
FIELD = "image"

_DISK_NAME = re.compile(r"\.(img|qcow2|raw)(\.(xz|gz|zst))?$", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PIN = re.compile(r"(sha256|sha512)=([0-9A-Fa-f]+)")
_PIN_LENGTHS = {"sha256": 64, "sha512": 128}


class Pin(msgspec.Struct, frozen=True):
    """A checksum that the published file must have. `algorithm`: sha256 or sha512. `value`: lower-case hex."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm}={self.value}"


class HttpImage(msgspec.Struct, frozen=True, kw_only=True):
    """A disk image at a URL. `url`: as written, without the fragment. `pin`: None: no checksum."""

    url: str
    pin: Pin | None = None

    @property
    def key(self) -> str:
        return f"{self.url}#{self.pin}" if self.pin else self.url

    @property
    def name(self) -> str:
        """Path in the URL; its suffix must match the content."""
        return unquote(urlsplit(self.url).path)

    @property
    def shown(self) -> str:
        """The URL for messages, without the query, which may contain a token."""
        base, mark, _ = self.url.partition("?")
        return f"{base}?..." if mark else base


class LocalImage(msgspec.Struct, frozen=True, kw_only=True):
    """A disk image in a file of this node. `path`: absolute, links not resolved. `pin`: None: no checksum."""

    path: str
    pin: Pin | None = None

    @property
    def key(self) -> str:
        return f"file://{self.path}#{self.pin}" if self.pin else f"file://{self.path}"

    @property
    def name(self) -> str:
        return self.path

    @property
    def shown(self) -> str:
        return self.path


class OciImage(msgspec.Struct, frozen=True, kw_only=True):
    """A disk in a container image. `registry`: ``HOST[:PORT]``. One of `tag` and `digest` is set."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def key(self) -> str:
        return f"oci:{self.shown}"

    @property
    def name(self) -> str:
        """Empty: an OCI reference has no suffix that could describe the content."""
        return ""

    @property
    def shown(self) -> str:
        text = f"{self.registry}/{self.repository}"
        return f"{text}@{self.digest}" if self.digest else f"{text}:{self.tag}"


ImageSource = HttpImage | LocalImage | OciImage


def source_hash(source: ImageSource) -> str:
    """Return the name of a source's files in the store: hex digits only, whatever the reference contains."""
    return hashlib.sha256(source.key.encode()).hexdigest()


def parse(image: str, aliases: Mapping[str, str]) -> ImageSource:
    """Parse an image reference. Raises InvalidPod with reason InvalidImageName.

    `aliases`: the operator's names for references.
    """
    written = aliases.get(image, image)
    if not written or any(c.isspace() or not c.isprintable() for c in written):
        raise _invalid(image, "is empty or holds spaces", "write a URL, a path or a registry reference")
    if written.startswith("/"):
        path, pin = _split_path(image, written)
        return _local(image, path, pin)
    if scheme := _SCHEME.match(written):
        return _parse_url(image, written, scheme[1].lower())
    if written.startswith("oci:"):
        return _parse_oci(image, written.removeprefix("oci:"))
    base = written.partition("#")[0].partition("?")[0]
    if _DISK_NAME.search(base):
        if "/" not in base:
            raise _invalid(image, "names no server", "write https://HOST/PATH, a path or an alias")
        return _parse_url(image, f"https://{written}", "https")
    return _parse_oci(image, written)


def _parse_url(image: str, url: str, scheme: str) -> ImageSource:
    if scheme not in ("http", "https", "file"):
        raise _invalid(image, f"has the scheme {scheme}", "use http, https, file or oci:")
    base, _, fragment = url.partition("#")
    pin = _parse_pin(image, fragment) if fragment else None
    try:
        parts = urlsplit(base)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _invalid(image, f"is not a URL ({error})", "write https://HOST[:PORT]/PATH") from error
    if scheme == "file":
        if host not in (None, "", "localhost") or parts.query:
            raise _invalid(image, "is not a file of this node", "write file:///PATH")
        return _local(image, unquote(parts.path), pin)
    if not host or port == 0:
        raise _invalid(image, "names no server", "write https://HOST[:PORT]/PATH")
    if "@" in parts.netloc:
        problem = "holds a user name or password"
        raise _invalid(image, problem, "put them into a pull secret for this server")
    rest = base.split("://", 1)[1][len(parts.netloc) :]
    return HttpImage(url=f"{scheme}://{parts.netloc.lower()}{rest or '/'}", pin=pin)


def _split_path(image: str, path: str) -> tuple[str, Pin | None]:
    """Split a path from its pin.

    A path may itself contain ``#``, so only ``#sha256=`` and ``#sha512=`` begin a pin.
    """
    base, mark, fragment = path.rpartition("#")
    if mark and fragment.partition("=")[0] in _PIN_LENGTHS:
        return base, _parse_pin(image, fragment)
    return path, None


def _local(image: str, path: str, pin: Pin | None) -> LocalImage:
    if not path.startswith("/") or "\0" in path:
        raise _invalid(image, "is not an absolute path", "write file:///PATH or /PATH")
    return LocalImage(path=path, pin=pin)


def _parse_pin(image: str, fragment: str) -> Pin:
    match = _PIN.fullmatch(fragment)
    if match is None or len(match[2]) != _PIN_LENGTHS[match[1]]:
        problem = f"has the fragment #{fragment}"
        raise _invalid(image, problem, "write #sha256= and 64, or #sha512= and 128 hexadecimal digits")
    return Pin(match[1], match[2].lower())


def _parse_oci(image: str, text: str) -> OciImage:
    parsed = find_image_reference(text)
    if parsed is None:
        raise _invalid(
            image,
            "is neither a URL, a path, HOST/PATH.qcow2 (.img, .raw, then .xz, .gz, .zst) nor a registry reference",
            "a registry reference is [REGISTRY/]name[:TAG][@sha256:DIGEST] with a name in lower case",
        )
    parsed = parsed.canonical
    if parsed.digest and not parsed.digest.startswith("sha256:"):
        raise _invalid(image, "has a digest other than sha256", "write @sha256: and 64 hexadecimal digits")
    return OciImage(
        registry=parsed.registry.lower(), repository=parsed.path, tag=parsed.tag, digest=parsed.digest
    )


def _invalid(image: str, problem: str, fix: str) -> InvalidPod:
    return InvalidPod(
        field=FIELD, problem=f"{without_credentials(image)!r} {problem}", fix=fix, reason=INVALID_IMAGE_NAME
    )
