"""Verification of pods' rights to a present image. Pure. Source: kubelet v1.36, pkg/kubelet/images/pullmanager.

A pull is recorded with the credentials that opened the registry. A pod may use the image without a pull if it has one
of these credentials, or if no pod-specific credential was needed. Otherwise its own pull decides. The policy says for
which images this holds; an image without any record of a pull counts as preloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from kubeletx.api import ImageAuth, find_image_reference

from .keyring import repository_of

NEVER: Final = "NeverVerify"
NEVER_PRELOADED: Final = "NeverVerifyPreloadedImages"
NEVER_ALLOWLISTED: Final = "NeverVerifyAllowlistedImages"
ALWAYS: Final = "AlwaysVerify"
POLICIES: Final = (NEVER, NEVER_PRELOADED, NEVER_ALLOWLISTED, ALWAYS)

MAX_RECORDED: Final = 100
"""Maximum of recorded credentials per image; beyond it, pods with other credentials pull for themselves."""

T = TypeVar("T")


class VerificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Policy for which images a pod must prove its right, although the image is present already.

    `allowlist`: images without tag and digest, or prefixes that end in ``/*``; for `NEVER_ALLOWLISTED` only.
    """

    policy: str = NEVER_PRELOADED
    allowlist: tuple[str, ...] = ()

    def is_needed(self, image: str, *, is_pulled: bool) -> bool:
        """Return True if pods must prove their right to this image.

        `is_pulled`: a pull of it is recorded, at least its begin.
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
    """Reference to a pull secret. `digest`: hash of the credential that it holds for the image, never the credential."""

    uid: str
    namespace: str
    name: str
    digest: str

    def is_same_secret(self, other: SecretUse) -> bool:
        """Return True if both are the same Secret object, whatever its content."""
        return bool(self.uid) and (self.uid, self.namespace, self.name) == (
            other.uid,
            other.namespace,
            other.name,
        )


class AccountUse(msgspec.Struct, frozen=True, kw_only=True):
    """Reference to a service account whose token a credential provider used."""

    uid: str
    namespace: str
    name: str


Origin = SecretUse | AccountUse | None
"""Origin of a credential; None: it is the node's, or none was needed."""


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One credential to try. `auth` None: pull anonymously."""

    auth: ImageAuth | None = None
    origin: Origin = None


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that may use an image without a pull of their own, by the credentials that they have.

    `node_wide`: every pod. All fields empty: no pod (the pull was interrupted).
    """

    node_wide: bool = False
    secrets: tuple[SecretUse, ...] = ()
    accounts: tuple[AccountUse, ...] = ()

    def with_origin(self, origin: Origin) -> Access:
        """The access with one more origin; the newest content of a secret replaces the earlier one."""
        match origin:
            case SecretUse():
                others = tuple(one for one in self.secrets if not one.is_same_secret(origin))
                return msgspec.structs.replace(self, secrets=_limited(others, origin))
            case AccountUse():
                others_of_node = tuple(one for one in self.accounts if one != origin)
                return msgspec.structs.replace(self, accounts=_limited(others_of_node, origin))
        return msgspec.structs.replace(self, node_wide=True)

    def find(self, origins: Iterable[Origin]) -> tuple[Origin, bool]:
        """(first of the origins that opens the image, True); (None, False) if none does; (None, True) if `node_wide`.

        A secret opens it with the same credential, or as the same object with rotated content.
        """
        if self.node_wide:
            return None, True
        for origin in origins:
            match origin:
                case SecretUse() if any(
                    one.is_same_secret(origin) or (one.digest and one.digest == origin.digest)
                    for one in self.secrets
                ):
                    return origin, True
                case AccountUse() if origin in self.accounts:
                    return origin, True
        return None, False


def digest_of(auth: ImageAuth) -> str:
    """Hash by which equal credentials are recognised."""
    return hashlib.sha256(msgspec.json.encode(auth)).hexdigest()


def check_pattern(pattern: str) -> str | None:
    """Check an item of the allowlist; returns its problem, None if it is valid."""
    text = pattern.removesuffix("*") if pattern.endswith("/*") else pattern
    if pattern != pattern.strip():
        return "it begins or ends with a space"
    if "*" in text:
        return "a wildcard is only allowed as '/*' at its end"
    if text != pattern:
        return "it names no registry" if text == "/" else None
    found = find_image_reference(pattern)
    if found is None:
        return "it is not an image reference"
    if found.repository != pattern:
        return f"write it in full, without tag and digest: {found.repository}"
    return None


def _is_listed(image: str, allowlist: Sequence[str]) -> bool:
    repository = repository_of(image)
    return any(
        repository.startswith(one[:-1]) if one.endswith("/*") else repository == one for one in allowlist
    )


def _limited(others: tuple[T, ...], newest: T) -> tuple[T, ...]:
    return (*others, newest)[-MAX_RECORDED:]
