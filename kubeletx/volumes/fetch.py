"""Fetches the cluster objects that a pod's volumes or a container's environment need, as an `ObjectSet`.

For a volume, an object that cannot be read becomes `Unread`; files written from it earlier then stay unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from kubeletx.api import ClusterObjects, KubeletxError, TokenParameters
from kubeletx.kube.manifests.volume_defaults import TOKEN_EXPIRATION_SECONDS
from kubeletx.kube.types.core import Container, Pod

from .cluster_objects import ObjectSet, Unread
from .references import (
    claims_of,
    config_maps_of,
    config_maps_of_volumes,
    secrets_of,
    secrets_of_volumes,
    tokens_of,
)

K = TypeVar("K")
T = TypeVar("T")


async def fetch_objects(pod: Pod, cluster: ClusterObjects) -> ObjectSet:
    """Fetch every object that the pod's volumes name; put `Unread` in place of an object that cannot be read.

    Objects that do not exist are left out.
    """
    wishes = {
        TokenParameters(audience=audience, expiration_seconds=seconds or TOKEN_EXPIRATION_SECONDS)
        for audience, seconds in tokens_of(pod)
    }
    config_maps, secrets, tokens, claims = await asyncio.gather(
        _all(config_maps_of_volumes(pod), partial(cluster.find_config_map, pod.namespace)),
        _all(secrets_of_volumes(pod), partial(cluster.find_secret, pod.namespace)),
        _all(wishes, partial(cluster.token, pod.uid)),
        _all(claims_of(pod), partial(cluster.find_volume, pod.uid)),
    )
    return ObjectSet(config_maps=config_maps, secrets=secrets, tokens=tokens, claims=claims)


async def fetch_environment(pod: Pod, container: Container, cluster: ClusterObjects) -> ObjectSet:
    """Fetch every config map and secret that the container's environment names; leave out those that do not exist.

    Raises Unavailable if one cannot be read.
    """
    config_maps, secrets = await asyncio.gather(
        _all(config_maps_of(container), partial(cluster.find_config_map, pod.namespace)),
        _all(secrets_of(container), partial(cluster.find_secret, pod.namespace)),
    )
    _raise_unread(config_maps.values())
    _raise_unread(secrets.values())
    return ObjectSet(config_maps=config_maps, secrets=secrets)


async def _all(keys: Iterable[K], ask: Callable[[K], Awaitable[T | None]]) -> dict[K, T | Unread]:
    wanted = list(keys)
    answers = await asyncio.gather(*(_one(ask, key) for key in wanted))
    return {key: found for key, found in zip(wanted, answers, strict=True) if found is not None}


async def _one(ask: Callable[[K], Awaitable[T | None]], key: K) -> T | Unread | None:
    try:
        return await ask(key)
    except KubeletxError as error:
        return Unread(str(error))


def _raise_unread(found: Iterable[object]) -> None:
    for one in found:
        if isinstance(one, Unread):
            raise one
