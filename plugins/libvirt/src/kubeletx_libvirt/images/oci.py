"""A small client of the OCI distribution specification: manifests, blobs, tokens.

It finds the layers of one image for this machine's architecture. All content is checked against its digest.
Registries are reached over https unless they are listed as insecure. Credentials are sent only to the
registry and to the token server that it names. Sources: OCI distribution 1.1; Docker registry v2 token
authentication.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import platform
import re
from collections.abc import Collection
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

import msgspec

from kubeletx.api import ImageAuth, PermissionDenied, Unavailable

from .fetch import basic_header
from .http import Http, check_status, read_document
from .problems import Refused
from .reach import Reach
from .reference import OciImage

MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_LAYER = re.compile(
    r"application/vnd\.(oci\.image\.layer\.v1\.tar|docker\.image\.rootfs\.diff\.tar)([.+](gzip|zstd))?"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_CHALLENGE = re.compile(r'([A-Za-z_]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MAX_LAYERS = 512
_HUB = {"docker.io": "registry-1.docker.io"}


class Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Descriptor of one blob: its digest, size and media type. `platform`: for an entry of an image index."""

    digest: str
    size: int
    media_type: str = ""
    platform: dict[str, object] | None = None


class _Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 0
    media_type: str = ""
    manifests: tuple[Descriptor, ...] | None = None
    layers: tuple[Descriptor, ...] | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of one image.

    `digest`: of the document that the reference names, which may be an image index. `layers`: from the lowest
    to the topmost.
    """

    digest: str
    layers: tuple[Descriptor, ...] = ()


class Registry:
    """Client of one image's registry, for one pull with one credential.

    `auth`: None: no credential. `insecure`: registries that are reached over plain HTTP. `shown`: the image
    in messages.
    """

    def __init__(
        self,
        http: Http,
        image: OciImage,
        auth: ImageAuth | None,
        *,
        insecure: Collection[str],
        reach: Reach,
        shown: str,
    ) -> None:
        self._http, self._image, self._auth, self._shown = http, image, auth, shown
        self._reach = reach
        self._base = f"{address_of(image, insecure)}/v2/{image.repository}"
        self.headers: dict[str, str] = {}
        """Request headers for the registry. They contain the credential once `find_manifest` has learned
        which kind is required.
        """

    async def find_manifest(self, known_digest: str = "") -> Manifest | None:
        """Return the image's manifest for this machine; None if its digest is equal to `known_digest`.

        Raises Refused for an image that cannot be used, TimedOut, and the errors of `Http.get` and
        `http.check_status`.
        """
        async with self._http.deadline(self._shown):
            return await self._find_manifest(known_digest)

    async def _find_manifest(self, known_digest: str) -> Manifest | None:
        digest, document = await self._get_document(self._image.digest or self._image.tag)
        if digest == known_digest:
            return None
        layers = document.layers
        if document.manifests is not None:
            chosen = self._choose(document.manifests)
            _, inner = await self._get_document(chosen.digest)
            layers = inner.layers
        if layers is None:
            raise Refused("has a manifest without layers", "push it as a container image")
        if len(layers) > _MAX_LAYERS:
            raise Refused(
                f"has {len(layers)} layers; at most {_MAX_LAYERS} are read", "put the disk into one"
            )
        for layer in layers:
            if not _DIGEST.fullmatch(layer.digest) or layer.size < 0:
                raise Refused(
                    f"has a layer with the digest {layer.digest[:80]!r}", "push it with sha256 digests"
                )
            if not _LAYER.fullmatch(layer.media_type):
                raise Refused(
                    f"has a layer of type {layer.media_type!r}",
                    "use plain, gzip or zstd layers in the registry",
                )
        return Manifest(digest=digest, layers=layers)

    def blob_url(self, digest: str) -> str:
        return f"{self._base}/blobs/{digest}"

    def _choose(self, manifests: tuple[Descriptor, ...]) -> Descriptor:
        machine = platform.machine()
        wanted = _ARCHITECTURES.get(machine, machine)
        offered = []
        for manifest in manifests:
            where = manifest.platform or {}
            if where.get("os") in ("linux", None, "") and where.get("architecture") == wanted:
                if _DIGEST.fullmatch(manifest.digest):
                    return manifest
            else:
                offered.append(f"{where.get('os', '?')}/{where.get('architecture', '?')}")
        raise Refused(
            f"has no image for linux/{wanted}, only for {', '.join(offered)[:200]}",
            f"push one for linux/{wanted}",
        )

    async def _get_document(self, reference: str) -> tuple[str, _Document]:
        url = f"{self._base}/manifests/{reference}"
        accept = {"Accept": ", ".join((*MANIFESTS, *INDEXES))}
        for is_second in (False, True):
            async with self._http.get(
                url, {**accept, **self.headers}, shown=self._shown, reach=self._reach
            ) as response:
                if response.status == HTTPStatus.UNAUTHORIZED and not is_second:
                    challenges = response.headers.getall("WWW-Authenticate", [])
                else:
                    check_status(response, self._shown)
                    body = await read_document(response, self._shown)
                    break
            await self._log_in(challenges)
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if _DIGEST.fullmatch(reference) and digest != reference:
            raise Refused(
                f"has a manifest with another digest ({digest}) than requested", "check the registry"
            )
        try:
            return digest, msgspec.json.decode(body, type=_Document)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(f"has no readable manifest ({error})", "check the registry's address") from error

    # --- who we are ---

    async def _log_in(self, challenges: list[str]) -> None:
        for challenge in challenges:
            scheme, _, rest = challenge.strip().partition(" ")
            parameters = {key.lower(): quoted or plain for key, quoted, plain in _CHALLENGE.findall(rest)}
            if scheme.lower() == "bearer" and parameters.get("realm"):
                self.headers = {"Authorization": f"Bearer {await self._get_token(parameters)}"}
                return
            if scheme.lower() == "basic":
                name, password = _credentials(self._auth)
                if not name:
                    raise PermissionDenied(
                        f"{self._shown}: the registry requires a user name; give the pod a pull secret for "
                        f"{self._image.registry}"
                    )
                self.headers = dict(basic_header(name, password))
                return
        raise PermissionDenied(f"{self._shown}: the registry requires an unsupported type of credentials")

    async def _get_token(self, parameters: dict[str, str]) -> str:
        if self._auth is not None and self._auth.registry_token:
            return self._auth.registry_token
        realm = parameters["realm"]
        scheme = urlsplit(realm).scheme
        if scheme != "https" and not (scheme == "http" and self._base.startswith("http://")):
            raise Refused(
                f"would send credentials to {realm[:80]!r}, which is not https",
                "use a token server with https",
            )
        query = {
            "service": parameters.get("service", ""),
            "scope": f"repository:{self._image.repository}:pull",
            "client_id": "kubeletx",
        }
        name, password = _credentials(self._auth)
        headers = dict(basic_header(name, password)) if name else {}
        if self._auth is not None and self._auth.identity_token:
            query |= {"grant_type": "refresh_token", "refresh_token": self._auth.identity_token}
            body = await self._http.post_form(realm, query, shown=self._shown, reach=self._reach)
        else:
            url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
            async with self._http.get(url, headers, shown=self._shown, reach=self._reach) as response:
                check_status(response, self._shown)
                body = await read_document(response, self._shown)
        try:
            answer = msgspec.json.decode(body, type=dict[str, object])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unavailable(f"{self._shown}: the token server gave no readable answer") from error
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token.isprintable() or not token.isascii():
            raise PermissionDenied(f"{self._shown}: the token server gave no token; check the pull secret")
        return token


def address_of(image: OciImage, insecure: Collection[str]) -> str:
    """Return the URL of the image's registry. `insecure`: registries that are reached over plain HTTP."""
    is_insecure = image.registry in {name.lower() for name in insecure}
    host = _HUB.get(image.registry, image.registry)
    return f"{'http' if is_insecure else 'https'}://{host}"


def _credentials(auth: ImageAuth | None) -> tuple[str, str]:
    if auth is None:
        return "", ""
    if auth.auth and not auth.username:
        try:
            name, _, password = base64.b64decode(auth.auth).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "", ""
        return name, password.rstrip("\0")
    return auth.username, auth.password
