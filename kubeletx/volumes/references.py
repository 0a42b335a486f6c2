"""Finds the names of the cluster objects that a pod refers to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeletx.api import ObjectUser
from kubeletx.kube.types.core import Container, Pod, Volume, VolumeProjection

from .pod_fields import all_containers

DEFAULT_SERVICE_ACCOUNT = "default"


def object_user(pod: Pod) -> ObjectUser:
    """Return the pod's identity, with the names of the cluster objects that it refers to.

    These are the config maps and secrets of volumes and environments, its pull secrets, and the claims of its ephemeral
    volumes.
    """
    spec = pod.spec
    containers = list(all_containers(pod))
    pull_secrets = [secret.name for secret in spec.image_pull_secrets]
    return ObjectUser(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        service_account=service_account_of(pod),
        config_maps=frozenset(
            [
                *config_maps_of_volumes(pod),
                *(name for container in containers for name in config_maps_of(container)),
            ]
        ),
        secrets=frozenset(
            name
            for name in (
                *secrets_of_volumes(pod),
                *(name for container in containers for name in secrets_of(container)),
                *pull_secrets,
            )
            if name
        ),
        own_claims=frozenset(
            claim_of(pod, volume) for volume in spec.volumes if volume.ephemeral is not None
        ),
    )


def service_account_of(pod: Pod) -> str:
    """Return the name of the pod's service account."""
    return pod.spec.service_account_name or pod.spec.service_account or DEFAULT_SERVICE_ACCOUNT


def config_maps_of_volumes(pod: Pod) -> list[str]:
    """Return the names of the config maps that the pod's volumes use, without duplicates."""
    names = [volume.config_map.name for volume in pod.spec.volumes if volume.config_map is not None]
    names += [
        projection.config_map.name for projection in _projections(pod) if projection.config_map is not None
    ]
    return _unique(names)


def secrets_of_volumes(pod: Pod) -> list[str]:
    """Return the names of the secrets that the pod's volumes use, without duplicates."""
    names = [volume.secret.secret_name or "" for volume in pod.spec.volumes if volume.secret is not None]
    names += [projection.secret.name for projection in _projections(pod) if projection.secret is not None]
    return _unique(names)


def claims_of(pod: Pod) -> list[str]:
    """Return the names of the PersistentVolumeClaims of the pod's volumes, without duplicates.

    Claims that the cluster creates for ephemeral volumes are included.
    """
    return _unique(claim_of(pod, volume) for volume in pod.spec.volumes)


def claim_of(pod: Pod, volume: Volume) -> str:
    """Return the name of the volume's PersistentVolumeClaim; empty for a kind of volume that has none.

    The claim of an ephemeral volume is named POD-VOLUME.
    """
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.name}-{volume.name}" if volume.ephemeral is not None else ""


def tokens_of(pod: Pod) -> Iterator[tuple[str, int | None]]:
    """Yield audience and expiration in seconds of every service account token that the pod's volumes project.

    The audience is empty, the expiration None, if the pod does not set it.
    """
    for projection in _projections(pod):
        if (token := projection.service_account_token) is not None:
            yield token.audience or "", token.expiration_seconds


def config_maps_of(container: Container) -> list[str]:
    """Return the names of the config maps that the container's environment uses, without duplicates."""
    names = [source.config_map_ref.name for source in container.env_from if source.config_map_ref is not None]
    for variable in container.env:
        if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
            names.append(variable.value_from.config_map_key_ref.name)
    return _unique(names)


def secrets_of(container: Container) -> list[str]:
    """Return the names of the secrets that the container's environment uses, without duplicates."""
    names = [source.secret_ref.name for source in container.env_from if source.secret_ref is not None]
    for variable in container.env:
        if variable.value_from is not None and variable.value_from.secret_key_ref is not None:
            names.append(variable.value_from.secret_key_ref.name)
    return _unique(names)


def _projections(pod: Pod) -> Iterator[VolumeProjection]:
    for volume in pod.spec.volumes:
        if volume.projected is not None:
            yield from volume.projected.sources


def _unique(names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]
