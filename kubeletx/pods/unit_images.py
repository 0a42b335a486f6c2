"""Images of containers and machines: pull policy and events (I1, B3 in docs/kubelet-parity.md).

Image stores and pulls are in `runtimes.images`.

| policy        | image present, pod may use it | present, pod may not use it | image missing     |
|---------------|-------------------------------|-----------------------------|-------------------|
| IfNotPresent  | used                          | pulled                      | pulled            |
| Always        | pulled                        | pulled                      | pulled            |
| Never         | used                          | ErrImageNeverPull           | ErrImageNeverPull |

`runtimes.images.verification` decides whether a pod may use a present image.

A pull tries the pod's own pull secrets before the node's credentials. It gets the identity of the pod: credential
providers may need the pod's service account, and a machine's image may be a file of the node, which pods of some
sources may not read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from kubeletx.api import (
    Clock,
    ClusterObjects,
    ImageSpec,
    ImageStatus,
    KubeletxError,
    ObjectData,
    SandboxSpec,
    Unsupported,
    parse_image_reference,
    without_credentials,
)
from kubeletx.api.names import POD_SOURCE, Event
from kubeletx.kube.text.duration import format_duration
from kubeletx.kube.types.core import Container, ImageVolumeSource, Pod, PodUnit
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.images.credentials import pull_secret_auths
from kubeletx.runtimes.images.store import IMAGE_PULL_BACK_OFF, ImageStore, PullBackOff, PullFailed
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.images.verification import Credential, Puller, SecretUse, digest_of

from .counters import Counters
from .pod_events import PodEvents

log = structlog.get_logger(__name__)

_NO_IMAGE = ImageStatus(id="", ref="")
_DOCKER_CONFIGS = ((".dockerconfigjson", False), (".dockercfg", True))


class ImageUser(msgspec.Struct, frozen=True, kw_only=True):
    """A container that needs its image, and its pod.

    `source`: name of the pod's source. `has_own_kernel`: True for a virtual machine. `handle`: the runtime that the pod
    is assigned to.
    """

    container: PodUnit
    pod: Pod
    source: str
    has_own_kernel: bool
    handle: RuntimeHandle
    events: PodEvents

    @property
    def name(self) -> str:
        return self.container.name

    @property
    def ref(self) -> str:
        return self.pod.ref

    @property
    def puller(self) -> Puller:
        pod = self.pod
        return Puller(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            service_account=pod.spec.service_account_name or pod.spec.service_account or "",
            source=self.source,
        )

    @property
    def sandbox(self) -> SandboxSpec:
        """A sandbox spec for the pull; the real sandbox may not exist yet."""
        pod = self.pod
        return SandboxSpec(
            uid=pod.uid, name=pod.name, namespace=pod.namespace, annotations={POD_SOURCE: self.source}
        )

    def fails(self, reason: str, text: str, retry_at: float | None = None) -> ImageResult:
        """Record event Failed and return the failure. `reason`: becomes the container's waiting reason.

        `retry_at`: see `ImageResult`.
        """
        self.events.warning(Event.FAILED, f"Error: {reason}", container=self.name)
        return ImageResult(reason=reason, message=text, retry_at=retry_at)

    def backs_off(self, text: str, error: PullFailed) -> ImageResult:
        """Record event BackOff with `text` and return the failure: the pod waits until `error.retry_at`."""
        self.events.normal(Event.BACK_OFF, text, container=self.name)
        return self.fails(IMAGE_PULL_BACK_OFF, str(error), error.retry_at)


class ImageResult(msgspec.Struct, frozen=True, kw_only=True):
    """The image or, if `status` is None, the failure.

    `reason`: the container's waiting reason. `retry_at`: monotonic time of the next pull, from the back-off of the
    image store; None if the store has none for this failure.
    """

    status: ImageStatus | None = None
    reason: str = ""
    message: str = ""
    retry_at: float | None = None


class UnitImages:
    """Makes sure that the images of all pods' containers are in the image stores of their runtimes."""

    def __init__(
        self,
        stores: ImageStores,
        clock: Clock,
        counters: Counters,
        cluster: Mapping[str, ClusterObjects] | None = None,
    ) -> None:
        """`cluster`: access to pull secrets, by pod source; pods of a source that is missing have no pull secrets."""
        self._stores = stores
        self._clock = clock
        self._counters = counters
        self._cluster = cluster or {}

    async def ensure(self, user: ImageUser) -> ImageResult:
        """Make sure the container's image is in its runtime's store and the pod may use it and its image volumes.

        Return the container's image, or the first failure. The image of a volume may still be missing; the runtime then
        refuses the container.
        """
        container = user.container
        own = await self._ensure_one(user, container.image or "", container.image_pull_policy)
        if own.status is None:
            return own
        for volume in _image_volumes(user.pod, container):
            image = await self._ensure_one(user, volume.reference or "", volume.pull_policy, is_volume=True)
            if image.status is None:
                return image
        return own

    async def _ensure_one(
        self,
        user: ImageUser,
        image: str,
        policy: str | None,
        *,
        is_volume: bool = False,
    ) -> ImageResult:
        """Make sure that one image is in the store and the pod may use it.

        `is_volume`: the image of an image volume. If missing, it is not pulled, and the runtime refuses the container.
        """
        handle, name, policy = user.handle, user.name, policy or "IfNotPresent"
        spec = ImageSpec(requested=image)
        try:
            store = await self._stores.of(handle)
            if isinstance(user.container, Container):  # a machine's image may be a URL or a path
                parse_image_reference(spec.requested, f"image of container {name}")
            present = await store.find_shared(spec, via=handle)
        except Unsupported:
            return ImageResult(status=_NO_IMAGE)
        except KubeletxError as error:
            text = f'Failed to inspect image "{spec.requested}": {error}'
            user.events.warning(Event.INSPECT_FAILED, text, container=name)
            return user.fails(error.reason or "ImageInspectError", str(error))
        if is_volume and present is None:
            return ImageResult(status=_NO_IMAGE)
        credentials = await self._pull_secrets(user, spec.requested)
        is_verified = present is not None and policy != "Always"
        if (
            is_verified
            and present is not None
            and await store.may_use(spec, present, credentials=credentials, puller=user.puller)
        ):
            text = f'Container image "{spec.requested}" already present on machine and can be accessed by the pod'
            user.events.normal(Event.PULLED, text, container=name)
            return ImageResult(status=present)
        if policy == "Never":
            text = _never_text(spec.requested, is_present=present is not None)
            user.events.warning(Event.ERR_IMAGE_NEVER_PULL, text, container=name)
            return user.fails("ErrImageNeverPull", text)
        return await self._pull(user, spec, store, credentials, is_verified=is_verified)

    async def _pull(
        self,
        user: ImageUser,
        spec: ImageSpec,
        store: ImageStore,
        credentials: tuple[Credential, ...],
        *,
        is_verified: bool,
    ) -> ImageResult:
        """Pull the image. `is_verified`: the image is present, and the pull only checks that the pod may use it."""
        image, name, clock = spec.requested, user.name, self._clock
        began, began_at = clock.monotonic(), clock.now()
        sandbox = user.sandbox if user.has_own_kernel else None
        user.events.normal(Event.PULLING, f'Pulling image "{image}"', container=name)
        waited: list[float] = []
        try:
            present = await store.pull(
                spec,
                via=user.handle,
                credentials=credentials,
                sandbox=sandbox,
                puller=user.puller,
                on_begin=lambda: waited.append(clock.monotonic() - began),
            )
        except PullBackOff as error:
            return user.backs_off(str(error), error)
        except PullFailed as error:
            message = _verification_text(str(error)) if is_verified else str(error)
            user.events.warning(Event.FAILED, f'Failed to pull image "{image}": {message}', container=name)
            change = user.fails(error.reason or "ErrImagePull", message, error.retry_at)
            user.backs_off(f'Back-off pulling image "{image}"', error)
            return change
        except KubeletxError as error:
            user.events.warning(Event.FAILED, f'Failed to pull image "{image}": {error}', container=name)
            return user.fails(error.reason or "ErrImagePull", str(error))
        elapsed = clock.monotonic() - began
        self._counters.image_pull.add(elapsed)
        self._counters.starts.pulled(user.pod.uid, began_at, clock.now())
        text = pulled_text(image, present, elapsed - sum(waited), elapsed)
        user.events.normal(Event.PULLED, text, container=name)
        log.info(
            "Pulled image",
            pod=user.ref,
            image=without_credentials(image),
            elapsed_seconds=round(elapsed, 3),
        )
        return ImageResult(status=present)

    async def _pull_secrets(self, user: ImageUser, image: str) -> tuple[Credential, ...]:
        """Read the pod's pull secrets; return their credentials that match the image, in the order of the secrets."""
        cluster = self._cluster.get(user.source)
        if cluster is None:
            return ()
        credentials: list[Credential] = []
        missing: list[str] = []
        for secret in dict.fromkeys(
            reference.name for reference in user.pod.spec.image_pull_secrets if reference.name
        ):
            try:
                pull_secret = await cluster.find_secret(user.pod.namespace, secret)
                if pull_secret is None:
                    missing.append(secret)
                else:
                    use = SecretUse(uid=pull_secret.uid, namespace=user.pod.namespace, name=secret, digest="")
                    credentials += _secret_credentials(pull_secret, use, image)
            except (KubeletxError, ValueError, msgspec.ValidationError) as error:
                log.warning(
                    "Failed to read pull secret",
                    pod=user.ref,
                    secret=secret,
                    err=type(error).__name__,
                )
                missing.append(secret)
        if missing:
            text = (
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); "
                "attempting to pull the image may not succeed."
            )
            user.events.warning(Event.FAILED_PULL_SECRET, text, container=user.name)
        return tuple(credentials)


def _image_volumes(pod: Pod, container: PodUnit) -> list[ImageVolumeSource]:
    """Return the image volumes that the container mounts."""
    mounted = {mount.name for mount in container.volume_mounts}
    return [
        volume.image for volume in pod.spec.volumes if volume.image is not None and volume.name in mounted
    ]


def pulled_text(image: str, present: ImageStatus, pull_seconds: float, total_seconds: float) -> str:
    """Return the kubelet's message of event Pulled; without the size if the store does not know it."""
    pull, total = (format_duration(round(seconds, 3)) for seconds in (pull_seconds, total_seconds))
    text = f'Successfully pulled image "{image}" in {pull} ({total} including waiting).'
    return f"{text} Image size: {present.size_bytes} bytes." if present.size_bytes else text


def _never_text(image: str, *, is_present: bool) -> str:
    if not is_present:
        return f'Container image "{image}" is not present with pull policy of Never'
    return (
        f'Container image "{image}" is present with pull policy of Never, but image pull credentials verification '
        "failed: it was pulled with credentials that this pod does not have; add the pull secret to the pod or "
        "let it pull the image"
    )


def _verification_text(problem: str) -> str:
    return f"image pull credentials verification of the present image failed: {problem}"


def _secret_credentials(secret: ObjectData, use: SecretUse, image: str) -> tuple[Credential, ...]:
    content = secret.as_bytes()
    return tuple(
        Credential(auth=auth, origin=msgspec.structs.replace(use, digest=digest_of(auth)))
        for key, is_old in _DOCKER_CONFIGS
        if key in content
        for auth in pull_secret_auths(content[key], image, is_old=is_old)
    )
