"""Verification that a pod may use an image that is already present. Pure.

A pull is recorded with the credential that the registry accepted. A pod may use the image without a pull if it has one
of the recorded credentials, or if a pull needed no pod-specific credential. Otherwise the pod must pull the image
itself. The policy determines for which images this is checked; an image without any record of a pull counts as
preloaded. Source: kubelet v1.36, pkg/kubelet/images/pullmanager.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from kubeletx.api import ImageAuth, PodUid, find_image_reference

from .keyring import repository_of


class Puller(msgspec.Struct, frozen=True, kw_only=True):
    """The pod for which an image is pulled.

    `service_account`: empty if the pod has none. `source`: name of the pod's source, such as ``api``.
    """

    uid: PodUid
    namespace: str = ""
    name: str = ""
    service_account: str = ""
    source: str = ""


NEVER: Final = "NeverVerify"
NEVER_PRELOADED: Final = "NeverVerifyPreloadedImages"
NEVER_ALLOWLISTED: Final = "NeverVerifyAllowlistedImages"
ALWAYS: Final = "AlwaysVerify"
POLICIES: Final = (NEVER, NEVER_PRELOADED, NEVER_ALLOWLISTED, ALWAYS)

MAX_RECORDED: Final = 100
"""Maximum of recorded credentials of each kind per image. The oldest are dropped; pods with these must pull again."""

T = TypeVar("T")


class VerificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Policy that determines which present images a pod may use only after verification.

    `policy`: one of `POLICIES`. `allowlist`: images without tag and digest, or prefixes that end in ``/*``; used only
    by the policy `NEVER_ALLOWLISTED`.
    """

    policy: str = NEVER_PRELOADED
    allowlist: tuple[str, ...] = ()

    def is_needed(self, image: str, *, is_pulled: bool) -> bool:
        """Return True if the policy requires verification for this image.

        `is_pulled`: True if a pull of the image is recorded, at least its begin; False if it counts as preloaded.
        """
        match self.policy:
            case "NeverVerify":
                return False
            case "NeverVerifyPreloadedImages":
                return is_pulled
            case "NeverVerifyAllowlistedImages":
                return not _is_listed(image, self.allowlist)
        return True


class SecretUse(msgspec.Struct, frozen=True, kw_only=True):
    """Reference to a pull secret. `digest`: hash of its credential for the image, never the credential itself."""

    uid: str
    namespace: str
    name: str
    digest: str

    def is_same_secret(self, other: SecretUse) -> bool:
        """Return True if both refer to the same Secret object; its content may have changed."""
        return bool(self.uid) and (self.uid, self.namespace, self.name) == (
            other.uid,
            other.namespace,
            other.name,
        )


class AccountUse(msgspec.Struct, frozen=True, kw_only=True):
    """Reference to the service account whose token a credential provider used."""

    uid: str
    namespace: str
    name: str


Origin = SecretUse | AccountUse | None
"""Origin of a credential: a pull secret or a service account. None: a credential of the node, or none was needed."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One credential to try for a pull. `auth`: None to pull anonymously. `origin`: where it comes from."""

    auth: ImageAuth | None = None
    origin: Origin = None


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Record of the credentials with which a pod may use an image without a pull of its own.

    `node_wide`: every pod may. `secrets`, `accounts`: pods with one of these may. If all fields are empty, no pod may,
    since the pull was interrupted.
    """

    node_wide: bool = False
    secrets: tuple[SecretUse, ...] = ()
    accounts: tuple[AccountUse, ...] = ()

    def with_origin(self, origin: Origin) -> Access:
        """Return the access with one more origin; a newer content of a known secret replaces the earlier one.

        `origin` None: every pod may use the image.
        """
        match origin:
            case SecretUse():
                others = tuple(secret for secret in self.secrets if not secret.is_same_secret(origin))
                return msgspec.structs.replace(self, secrets=_limited(others, origin))
            case AccountUse():
                others_of_node = tuple(account for account in self.accounts if account != origin)
                return msgspec.structs.replace(self, accounts=_limited(others_of_node, origin))
        return msgspec.structs.replace(self, node_wide=True)

    def find(self, origins: Iterable[Origin]) -> tuple[Origin, bool]:
        """Decide whether a pod with credentials of these origins may use the image.

        Returns the first recorded one of the origins and True, or None and False if none is recorded. If every pod may
        use the image: None and True. A secret counts as recorded if a recorded one is the same object, even with other
        content, or has the same credential.
        """
        if self.node_wide:
            return None, True
        for origin in origins:
            match origin:
                case SecretUse() if any(
                    secret.is_same_secret(origin) or (secret.digest and secret.digest == origin.digest)
                    for secret in self.secrets
                ):
                    return origin, True
                case AccountUse() if origin in self.accounts:
                    return origin, True
        return None, False


def digest_of(auth: ImageAuth) -> str:
    """Return a hash of the credential, by which equal credentials are recognised."""
    return hashlib.sha256(msgspec.json.encode(auth)).hexdigest()


def check_pattern(pattern: str) -> str | None:
    """Check an item of the allowlist; return its problem as a text, None if it is valid."""
    text = pattern.removesuffix("*") if pattern.endswith("/*") else pattern
    if pattern != pattern.strip():
        return "it begins or ends with a space"
    if "*" in text:
        return "a wildcard is only allowed as '/*' at its end"
    if text != pattern:
        return "it names no registry" if text == "/" else None
    reference = find_image_reference(pattern)
    if reference is None:
        return "it is not an image reference"
    if reference.repository != pattern:
        return f"write it in full, without tag and digest: {reference.repository}"
    return None


def _is_listed(image: str, allowlist: Sequence[str]) -> bool:
    repository = repository_of(image)
    return any(
        repository.startswith(pattern[:-1]) if pattern.endswith("/*") else repository == pattern
        for pattern in allowlist
    )


def _limited(others: tuple[T, ...], newest: T) -> tuple[T, ...]:
    return (*others, newest)[-MAX_RECORDED:]
