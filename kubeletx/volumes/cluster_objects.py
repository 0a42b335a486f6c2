"""`ObjectSet`: the cluster objects that a pod's volumes or a container's environment need.

They are all fetched first; volumes and environments are then built without further requests. For a volume, an object
that cannot be read becomes `Unread`; files written from it earlier then stay unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from kubeletx.api import (
    ClusterObjects,
    ClusterVolume,
    KubeletxError,
    ObjectData,
    TokenParameters,
    Unavailable,
)
from kubeletx.api.names import Event
from kubeletx.kube.manifests.volume_defaults import TOKEN_EXPIRATION_SECONDS
from kubeletx.kube.types.core import Container, Pod

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


class Unread(Unavailable):
    """Placeholder in an `ObjectSet` for an object that could not be read; `read` raises it.

    Files of a volume that were written from the object earlier are then kept.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, reason=Event.FAILED_MOUNT)


class ObjectSet(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the pod's namespace, by name, from which volumes or an environment are built.

    An object without an entry does not exist in the cluster; `Unread` means that reading it failed. `tokens`: service
    account tokens, by audience and lifetime. `claims`: the volume that a PersistentVolumeClaim is bound to, by claim
    name. The repr shows no content.
    """

    config_maps: Mapping[str, ObjectData | Unread] = {}
    secrets: Mapping[str, ObjectData | Unread] = {}
    tokens: Mapping[TokenParameters, bytes | Unread] = {}
    claims: Mapping[str, ClusterVolume | Unread] = {}

    def __repr__(self) -> str:
        return f"ObjectSet({sorted(self.config_maps)}, {sorted(self.secrets)}, tokens={len(self.tokens)})"


def read(objects: Mapping[K, T | Unread], key: K) -> T | None:
    """Return the object with this key from a field of an `ObjectSet`; None if it does not exist in the cluster.

    Raises `Unread` if the object could not be fetched.
    """
    known = objects.get(key)
    if isinstance(known, Unread):
        raise known
    return known


async def fetch_objects(pod: Pod, cluster: ClusterObjects) -> ObjectSet:
    """Fetch every object that the pod's volumes name; put `Unread` in place of an object that cannot be read.

    Objects that do not exist are left out.
    """
    tokens_wanted = {
        TokenParameters(audience=audience, expiration_seconds=seconds or TOKEN_EXPIRATION_SECONDS)
        for audience, seconds in tokens_of(pod)
    }
    config_maps, secrets, tokens, claims = await asyncio.gather(
        _all(config_maps_of_volumes(pod), partial(cluster.find_config_map, pod.namespace)),
        _all(secrets_of_volumes(pod), partial(cluster.find_secret, pod.namespace)),
        _all(tokens_wanted, partial(cluster.token, pod.uid)),
        _all(claims_of(pod), partial(cluster.find_volume, pod.uid)),
    )
    return ObjectSet(config_maps=config_maps, secrets=secrets, tokens=tokens, claims=claims)


async def fetch_environment(pod: Pod, container: Container, cluster: ClusterObjects) -> ObjectSet:
    """Fetch every config map and secret that the container's environment names; leave out missing ones.

    Raises Unavailable if one cannot be read.
    """
    config_maps_wanted, secrets_wanted = list(config_maps_of(container)), list(secrets_of(container))
    if not config_maps_wanted and not secrets_wanted:  # as most containers: no tasks are needed
        return ObjectSet()
    config_maps, secrets = await asyncio.gather(
        _all(config_maps_wanted, partial(cluster.find_config_map, pod.namespace)),
        _all(secrets_wanted, partial(cluster.find_secret, pod.namespace)),
    )
    _raise_unread(config_maps.values())
    _raise_unread(secrets.values())
    return ObjectSet(config_maps=config_maps, secrets=secrets)


async def _all(keys: Iterable[K], ask: Callable[[K], Awaitable[T | None]]) -> dict[K, T | Unread]:
    wanted = list(keys)
    answers = await asyncio.gather(*(_one(ask, key) for key in wanted))
    return {key: answer for key, answer in zip(wanted, answers, strict=True) if answer is not None}


async def _one(ask: Callable[[K], Awaitable[T | None]], key: K) -> T | Unread | None:
    try:
        return await ask(key)
    except KubeletxError as error:
        return Unread(str(error))


def _raise_unread(answers: Iterable[object]) -> None:
    for known in answers:
        if isinstance(known, Unread):
            raise known
