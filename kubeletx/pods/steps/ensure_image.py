"""Images of units: pull policy and events here, stores and pulls in `runtimes.images` (I1, B3).

| policy        | image there, open to the pod | image there, not open to it | image missing     |
|---------------|------------------------------|-----------------------------|-------------------|
| IfNotPresent  | used                         | pulled                      | pulled            |
| Always        | asked for again              | asked for again             | pulled            |
| Never         | used                         | ErrImageNeverPull           | ErrImageNeverPull |

Whether an image is open to a pod: `runtimes.images.verification`.

A pull brings the pod's own pull secrets before the node's credentials, and says whose pod asks: credential providers
may want its service account, and a machine's image may be a file of the node, which not every source may read.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from kubeletx.api import (
    ClusterObjects,
    ImageSpec,
    ImageStatus,
    KubeletxError,
    ObjectData,
    SandboxSpec,
    Unsupported,
)
from kubeletx.api.names import POD_SOURCE, Event
from kubeletx.kube.text.duration import format_duration
from kubeletx.kube.text.image_names import without_credentials
from kubeletx.kube.types.core import Container, ImageVolumeSource, Pod, VirtualMachine
from kubeletx.runtimes.images.credentials import pull_secret_auths
from kubeletx.runtimes.images.errors import IMAGE_PULL_BACK_OFF, PullBackOff, PullFailed
from kubeletx.runtimes.images.puller import Puller
from kubeletx.runtimes.images.references import parse
from kubeletx.runtimes.images.store import ImageStore
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.images.verification import Credential, SecretUse, digest_of

from ..model import changes
from ..model.changes import Change
from ..model.roles import spec_of
from .context import StepContext

log = structlog.get_logger(__name__)

_NO_IMAGE = ImageStatus(id="", ref="")
_DOCKER_CONFIGS = ((".dockerconfigjson", False), (".dockercfg", True))


class UnitImages:
    """Implements `services.Images` over the stores of all runtimes."""

    def __init__(self, stores: ImageStores, cluster: Mapping[str, ClusterObjects] | None = None) -> None:
        """`cluster`: where pull secrets are, by the source of the pods; pods of others have none."""
        self._stores = stores
        self._cluster = cluster or {}

    async def ensure(self, step: StepContext, name: str) -> Change:
        """Have the container's image in the bound store, and see that the pod may use those of its image volumes."""
        container = spec_of(step.pod, name, on_vm_runtime=step.facts.is_machine)
        own = await self._ensure_one(
            step, name, container, container.image or "", container.image_pull_policy
        )
        if not isinstance(own, ImageStatus):
            return own
        for volume in _image_volumes(step.pod, container):
            found = await self._ensure_one(
                step, name, container, volume.reference or "", volume.pull_policy, is_volume=True
            )
            if not isinstance(found, ImageStatus):
                return found
        return changes.image_present(name, own)

    async def _ensure_one(
        self,
        step: StepContext,
        name: str,
        container: Container | VirtualMachine,
        image: str,
        policy: str | None,
        *,
        is_volume: bool = False,
    ) -> ImageStatus | Change:
        """The image, or what the pod is told. One of a volume that is missing is left to the runtime."""
        handle, policy = step.handle, policy or "IfNotPresent"
        spec = ImageSpec(requested=image)
        try:
            store = await self._stores.of(handle)
            if not isinstance(container, VirtualMachine):  # a machine's image may be a URL or a path
                parse(spec.requested, f"image of container {name}")
            present = await store.find_shared(spec, via=handle)
        except Unsupported:
            return _NO_IMAGE
        except KubeletxError as error:
            text = f'Failed to inspect image "{spec.requested}": {error}'
            step.warning(Event.INSPECT_FAILED, text, container=name)
            return _failed(step, name, error.reason or "ImageInspectError", str(error))
        if is_volume and present is None:
            return _NO_IMAGE
        credentials = await self._pull_secrets(step, name, spec.requested)
        is_verified = present is not None and policy != "Always"
        if (
            is_verified
            and present is not None
            and await store.may_use(spec, present, credentials=credentials, puller=_puller(step))
        ):
            text = f'Container image "{spec.requested}" already present on machine and can be accessed by the pod'
            step.normal(Event.PULLED, text, container=name)
            return present
        if policy == "Never":
            text = _never_text(spec.requested, is_present=present is not None)
            step.warning(Event.ERR_IMAGE_NEVER_PULL, text, container=name)
            return _failed(step, name, "ErrImageNeverPull", text)
        return await self._pull(step, name, spec, store, credentials, is_verified=is_verified)

    async def _pull(
        self,
        step: StepContext,
        name: str,
        spec: ImageSpec,
        store: ImageStore,
        credentials: tuple[Credential, ...],
        *,
        is_verified: bool,
    ) -> ImageStatus | Change:
        """`is_verified`: the image is present, and the pull shows whether the pod may use it."""
        image, began = spec.requested, step.now().mono
        began_at = step.now().wall
        sandbox = _asker(step) if step.facts.is_machine else None
        step.normal(Event.PULLING, f'Pulling image "{image}"', container=name)
        waited: list[float] = []
        try:
            present = await store.pull(
                spec,
                via=step.handle,
                credentials=credentials,
                sandbox=sandbox,
                puller=_puller(step),
                on_begin=lambda: waited.append(step.now().mono - began),
            )
        except PullBackOff as error:
            return _backs_off(step, name, str(error), error)
        except PullFailed as error:
            message = _verification_text(str(error)) if is_verified else str(error)
            step.warning(Event.FAILED, f'Failed to pull image "{image}": {message}', container=name)
            change = _failed(step, name, error.reason or "ErrImagePull", message, error.retry_at)
            _backs_off(step, name, f'Back-off pulling image "{image}"', error)
            return change
        except KubeletxError as error:
            step.warning(Event.FAILED, f'Failed to pull image "{image}": {error}', container=name)
            return _failed(step, name, error.reason or "ErrImagePull", str(error))
        elapsed = step.now().mono - began
        step.services.counters.image_pull.add(elapsed)
        step.services.counters.starts.pulled(step.uid, began_at, step.now().wall)
        text = _pulled_text(image, present, elapsed - sum(waited), elapsed)
        step.normal(Event.PULLED, text, container=name)
        log.info(
            "Pulled image",
            pod=step.desired.ref,
            image=without_credentials(image),
            elapsed_seconds=round(elapsed, 3),
        )
        return present

    async def _pull_secrets(self, step: StepContext, name: str, image: str) -> tuple[Credential, ...]:
        """Credentials of the pod's secrets that fit the image, in the order of the secrets."""
        cluster = self._cluster.get(step.desired.source)
        if cluster is None:
            return ()
        credentials: list[Credential] = []
        missing: list[str] = []
        for secret in dict.fromkeys(one.name for one in step.pod.spec.image_pull_secrets if one.name):
            try:
                found = await cluster.find_secret(step.pod.namespace, secret)
                if found is None:
                    missing.append(secret)
                else:
                    use = SecretUse(uid=found.uid, namespace=step.pod.namespace, name=secret, digest="")
                    credentials += _secret_credentials(found, use, image)
            except (KubeletxError, ValueError, msgspec.ValidationError) as error:
                log.warning(
                    "Failed to read pull secret",
                    pod=step.desired.ref,
                    secret=secret,
                    err=type(error).__name__,
                )
                missing.append(secret)
        if missing:
            text = (
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); "
                "attempting to pull the image may not succeed."
            )
            step.warning(Event.FAILED_PULL_SECRET, text, container=name)
        return tuple(credentials)


def _image_volumes(pod: Pod, container: Container | VirtualMachine) -> list[ImageVolumeSource]:
    """Of the volumes that the container mounts."""
    mounted = {mount.name for mount in container.volume_mounts}
    return [one.image for one in pod.spec.volumes if one.image is not None and one.name in mounted]


def _pulled_text(image: str, present: ImageStatus, pull_seconds: float, total_seconds: float) -> str:
    """The kubelet's message; without the size where the store does not know it."""
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


def _asker(step: StepContext) -> SandboxSpec:
    """Whose pod wants the image; its sandbox may not be there yet."""
    pod = step.pod
    return SandboxSpec(
        uid=step.uid, name=pod.name, namespace=pod.namespace, annotations={POD_SOURCE: step.desired.source}
    )


def _puller(step: StepContext) -> Puller:
    """Whom credentials may depend on."""
    pod = step.pod
    return Puller(
        uid=step.uid,
        namespace=pod.namespace,
        name=pod.name,
        service_account=pod.spec.service_account_name or pod.spec.service_account or "",
        source=step.desired.source,
    )


def _failed(step: StepContext, name: str, reason: str, text: str, retry_at: float | None = None) -> Change:
    """The container cannot start for want of its image: the event that says so with the waiting reason."""
    step.warning(Event.FAILED, f"Error: {reason}", container=name)
    return changes.image_failed(name, reason, text, retry_at)


def _backs_off(step: StepContext, name: str, text: str, error: PullFailed) -> Change:
    """The next pull waits. Told when the wait begins: nothing happens again before it ends."""
    step.normal(Event.BACK_OFF, text, container=name)
    return _failed(step, name, IMAGE_PULL_BACK_OFF, str(error), error.retry_at)
