"""Which config maps and secrets a pod's volumes refer to, and their content."""

from __future__ import annotations

from kubeletx.kube.core import Pod, Volume, VolumeProjection

from .cluster_objects import ClusterObjects, ObjectData, ObjectSet


async def fetch_objects(pod: Pod, cluster: ClusterObjects) -> ObjectSet:
    """Every object that the pod's volumes name and that exists."""
    config_maps: dict[str, ObjectData] = {}
    secrets: dict[str, ObjectData] = {}
    for name in _unique(_config_maps(pod)):
        if (data := await cluster.find_config_map(pod.namespace, name)) is not None:
            config_maps[name] = data
    for name in _unique(_secrets(pod)):
        if (data := await cluster.find_secret(pod.namespace, name)) is not None:
            secrets[name] = data
    return ObjectSet(config_maps=config_maps, secrets=secrets)


def _config_maps(pod: Pod) -> list[str]:
    found = [volume.config_map.name for volume in pod.spec.volumes if volume.config_map is not None]
    for source in (one for volume in pod.spec.volumes for one in _projections(volume)):
        if source.config_map is not None:
            found.append(source.config_map.name)
    return found


def _secrets(pod: Pod) -> list[str]:
    found = [volume.secret.secret_name or "" for volume in pod.spec.volumes if volume.secret is not None]
    for source in (one for volume in pod.spec.volumes for one in _projections(volume)):
        if source.secret is not None:
            found.append(source.secret.name)
    return found


def _projections(volume: Volume) -> tuple[VolumeProjection, ...]:
    return volume.projected.sources if volume.projected is not None else ()


def _unique(names: list[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name]
