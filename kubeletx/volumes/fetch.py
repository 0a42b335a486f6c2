"""What volumes and environments need of the cluster, fetched before the pure translation begins."""

from __future__ import annotations

from kubeletx.api import ClusterObjects, ObjectData, TokenWish
from kubeletx.kube.core import Container, Pod
from kubeletx.kube.volume_defaults import TOKEN_EXPIRATION_SECONDS

from .cluster_objects import ObjectSet
from .references import (
    claims_of,
    config_maps_of,
    config_maps_of_volumes,
    secrets_of,
    secrets_of_volumes,
    tokens_of,
)


async def fetch_objects(pod: Pod, cluster: ClusterObjects) -> ObjectSet:
    """Every object that the pod's volumes name and that exists."""
    tokens, claims = {}, {}
    for audience, seconds in tokens_of(pod):
        wish = TokenWish(audience=audience, expiration_seconds=seconds or TOKEN_EXPIRATION_SECONDS)
        tokens[wish] = await cluster.token(pod.uid, wish)
    for claim in claims_of(pod).values():
        if (volume := await cluster.find_volume(pod.namespace, claim)) is not None:
            claims[claim] = volume
    found = await _fetch(pod.namespace, config_maps_of_volumes(pod), secrets_of_volumes(pod), cluster)
    return ObjectSet(config_maps=found.config_maps, secrets=found.secrets, tokens=tokens, claims=claims)


async def fetch_environment(pod: Pod, container: Container, cluster: ClusterObjects) -> ObjectSet:
    """Every object that the container's environment names and that exists."""
    return await _fetch(pod.namespace, config_maps_of(container), secrets_of(container), cluster)


async def _fetch(
    namespace: str, config_maps: list[str], secrets: list[str], cluster: ClusterObjects
) -> ObjectSet:
    found_maps: dict[str, ObjectData] = {}
    found_secrets: dict[str, ObjectData] = {}
    for name in config_maps:
        if (data := await cluster.find_config_map(namespace, name)) is not None:
            found_maps[name] = data
    for name in secrets:
        if (data := await cluster.find_secret(namespace, name)) is not None:
            found_secrets[name] = data
    return ObjectSet(config_maps=found_maps, secrets=found_secrets)
