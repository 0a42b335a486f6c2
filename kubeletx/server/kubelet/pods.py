"""Routes of pods, checkpoints of containers, configuration and health in the kubelet's API."""

from __future__ import annotations

from typing import Any, Protocol

from aiohttp import web
from msgspec.structs import replace

from kubeletx.kube.types.core import Pod, PodList, PodSpec, PodStatus
from kubeletx.kube.types.meta import ObjectMeta

from ..access.authorization import PROXY
from ..backend import AdminBackend, PodVerbs
from ..healthz import health_routes
from ..http import json_response
from ..views import ConfigValue, PodTarget
from .route import KubeletRoute, find_pod, target_of

MAX_DIGITS = 9
"""Maximum digits of the timeout in seconds: no runtime accepts a larger number."""


def routes(backend: AdminBackend) -> tuple[KubeletRoute, ...]:
    """Return the routes ``/pods``, ``/runningpods``, ``/configz`` and ``/healthz``."""

    async def pods(_request: web.Request) -> web.StreamResponse:
        return json_response(PodList(items=tuple(await backend.pods.list_pods())))

    async def running(_request: web.Request) -> web.StreamResponse:
        pods = [_as_it_runs(pod) for pod in await backend.pods.list_pods()]
        return json_response(PodList(items=tuple(pod for pod in pods if pod is not None)))

    async def configz(_request: web.Request) -> web.StreamResponse:
        return json_response({"kubeletconfig": configuration(await backend.about.config_view())})

    health = tuple(
        KubeletRoute(("GET",), route.path, route.handler, ("healthz", PROXY))
        for route in health_routes(backend.about)
        if isinstance(route.path, str)
    )
    return (
        KubeletRoute(("GET",), "/pods", pods, ("pods", PROXY)),
        KubeletRoute(("GET",), "/pods/", pods, ("pods", PROXY)),
        KubeletRoute(("GET",), "/runningpods", running, ("pods", PROXY), is_debugging=True),
        KubeletRoute(("GET",), "/runningpods/", running, ("pods", PROXY), is_debugging=True),
        KubeletRoute(("GET",), "/configz", configz, ("configz", PROXY)),
        *health,
    )


def _as_it_runs(pod: Pod) -> Pod | None:
    """Return the pod with only the containers that ran at the runtime's last report; None if none ran."""
    statuses = pod.status.container_statuses if pod.status is not None else ()
    running = {
        status.name for status in statuses if status.state is not None and status.state.running is not None
    }
    if not running:
        return None
    containers = tuple(container for container in pod.spec.containers if container.name in running)
    metadata = ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
    return replace(
        pod,
        metadata=metadata,
        spec=PodSpec(
            containers=tuple(
                type(container)(name=container.name, image=container.image) for container in containers
            )
        ),
        status=PodStatus(),
    )


def configuration(values: list[ConfigValue] | Any) -> dict[str, Any]:
    """Convert the effective settings to a KubeletConfiguration, as plain values for JSON.

    Settings without a key in the configuration file, and settings without effect, are left out.
    """
    settings: dict[str, Any] = {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
    }
    for row in values:
        if not row.key or row.unused:
            continue
        *path, last = row.key.split(".")
        table = settings
        for name in path:
            table = table.setdefault(name, {})
        table[last] = row.value
    return settings


class CheckpointSource(Protocol):
    """Protocol of the object that writes checkpoints of containers; the agent implements it."""

    async def checkpoint(self, target: PodTarget, container: str, timeout_seconds: float | None) -> str:
        """Write the container's state to an archive; returns the archive's path on the node.

        `timeout_seconds` None: a default. Raises NotFound, Conflict, or Unsupported if the runtime makes no
        checkpoints.
        """
        ...


def checkpoint_routes(backend: PodVerbs, source: CheckpointSource) -> tuple[KubeletRoute, ...]:
    """Return the route ``/checkpoint/NAMESPACE/POD/CONTAINER``. Source: kubelet, server.go checkpoint."""

    async def checkpoint(request: web.Request) -> web.StreamResponse:
        target, container = target_of(request), request.match_info["container"]
        seconds = _timeout(request)
        await find_pod(backend, target)
        path = await source.checkpoint(target, container, seconds)
        return json_response({"items": [path]})

    path = "/checkpoint/{namespace}/{pod}/{container}"
    return (KubeletRoute(("POST",), path, checkpoint, ("checkpoint",)),)


def _timeout(request: web.Request) -> float | None:
    text = request.query.get("timeout")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise web.HTTPBadRequest(
            text=f"cannot parse value of timeout parameter: {text[:20]!r} is not a number of seconds such as 30"
        )
    return float(text)
