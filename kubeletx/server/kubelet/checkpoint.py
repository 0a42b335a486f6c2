"""``/checkpoint``: writes the state of a container to an archive on the node. Source: kubelet, server.go checkpoint."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from ..backend import PodVerbs
from ..http import json_response
from ..views import PodTarget
from .route import KubeletRoute, find_pod, target_of

MAX_DIGITS = 9
"""Maximum digits of the timeout in seconds: no runtime accepts a larger number."""


class CheckpointSource(Protocol):
    """Protocol of the object that writes checkpoints of containers; the agent implements it."""

    async def checkpoint(self, target: PodTarget, container: str, timeout_seconds: float | None) -> str:
        """Write the container's state to an archive; returns the archive's path on the node.

        `timeout_seconds` None: a default. Raises NotFound, Conflict, or Unsupported if the runtime makes no
        checkpoints.
        """
        ...


def routes(backend: PodVerbs, source: CheckpointSource) -> tuple[KubeletRoute, ...]:
    """Return the route ``/checkpoint/NAMESPACE/POD/CONTAINER``."""

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
