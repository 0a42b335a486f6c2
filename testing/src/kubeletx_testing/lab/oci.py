"""Builds and uploads container images with only the standard library.

An image consists of gzipped tar layers, a configuration and a manifest, each named by its SHA-256. Everything
is written with time zero and sorted names, so that the same input gives the same digests everywhere. Sources:
OCI image specification 1.0 (layer, config, manifest) and the distribution specification (push).
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import tarfile
from collections.abc import Iterable, Mapping

import msgspec

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a layer: a file, a symbolic link or a directory.

    `content`: content of a file. `link`: target of a symbolic link. If both are None, the entry is a
    directory.
    """

    path: str
    content: bytes | None = None
    link: str | None = None
    mode: int = 0o755
    uid: int = 0


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is ready to be pushed.

    `blobs`: layers and configuration by digest. `manifest`: the manifest as JSON.
    """

    name: str
    tag: str
    manifest: bytes
    blobs: dict[str, bytes]

    @property
    def digest(self) -> str:
        """Digest of the manifest, for references with a digest."""
        return _digest(self.manifest)


def build_layer(entries: Iterable[Entry]) -> bytes:
    """Return an uncompressed tar archive of `entries`. Equal entries give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(entries, key=lambda member: member.path):
            info = tarfile.TarInfo(entry.path)
            info.mode, info.uid, info.gid = entry.mode, entry.uid, entry.uid
            if entry.link is not None:
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
                tar.addfile(info)
            elif entry.content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
    return buffer.getvalue()


def build_image(
    *, name: str, tag: str, layers: Iterable[bytes], config: Mapping[str, object], architecture: str
) -> Image:
    """Build an image from uncompressed layers, the lowest first.

    `config`: the ``config`` object of the image specification.
    """
    blobs: dict[str, bytes] = {}
    diff_ids: list[str] = []
    descriptors: list[dict[str, object]] = []
    for layer in layers:
        packed = gzip.compress(layer, compresslevel=6, mtime=0)
        diff_ids.append(_digest(layer))
        blobs[_digest(packed)] = packed
        descriptors.append({"mediaType": LAYER_TYPE, "digest": _digest(packed), "size": len(packed)})
    config_blob = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
    )
    blobs[_digest(config_blob)] = config_blob
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": _digest(config_blob), "size": len(config_blob)},
            "layers": descriptors,
        }
    )
    return Image(name=name, tag=tag, manifest=manifest, blobs=blobs)


def push(image: Image, *, host: str, port: int, headers: Mapping[str, str] | None = None) -> None:
    """Upload an image to a plain-HTTP registry; blobs that the registry has are not sent again.

    `headers`: sent with every request, such as credentials. Raises OSError if the registry refuses.
    """
    connection = _Connection(host, port, headers or {})
    try:
        for digest, blob in image.blobs.items():
            if _call(connection, "HEAD", f"/v2/{image.name}/blobs/{digest}") == http.HTTPStatus.OK:
                continue
            _upload(connection, image.name, digest, blob)
        status = _call(
            connection,
            "PUT",
            f"/v2/{image.name}/manifests/{image.tag}",
            image.manifest,
            {"Content-Type": MANIFEST_TYPE},
        )
        if status != http.HTTPStatus.CREATED:
            raise OSError(f"registry refused the manifest of {image.name}:{image.tag}: HTTP {status}")
    finally:
        connection.close()


class _Connection(http.client.HTTPConnection):
    """HTTP connection to a registry. `extra`: headers that are sent with every request."""

    def __init__(self, host: str, port: int, headers: Mapping[str, str]) -> None:
        super().__init__(host, port, timeout=30)
        self.extra = dict(headers)


def _upload(connection: _Connection, name: str, digest: str, blob: bytes) -> None:
    connection.request(
        "POST", f"/v2/{name}/blobs/uploads/", headers={"Content-Length": "0", **connection.extra}
    )
    response = connection.getresponse()
    response.read()
    location = response.headers.get("Location", "")
    if response.status != http.HTTPStatus.ACCEPTED or not location:
        raise OSError(f"registry refused an upload to {name}: HTTP {response.status}")
    path = "/" + location.split("://", 1)[1].split("/", 1)[1] if "://" in location else location
    separator = "&" if "?" in path else "?"
    status = _call(
        connection,
        "PUT",
        f"{path}{separator}digest={digest}",
        blob,
        {"Content-Type": "application/octet-stream"},
    )
    if status != http.HTTPStatus.CREATED:
        raise OSError(f"registry refused blob {digest} of {name}: HTTP {status}")


def _call(
    connection: _Connection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> int:
    connection.request(method, path, body=body, headers={**(headers or {}), **connection.extra})
    response = connection.getresponse()
    response.read()
    return response.status


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
