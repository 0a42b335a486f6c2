"""``/containerLogs``, which ``kubectl logs`` reads through the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from aiohttp import web
from msgspec.structs import replace

from kubeletx.api import InvalidConfig, KubeletxError, NotFound
from kubeletx.kube.manifests.units import main_names
from kubeletx.kube.types.core import Pod

from ..admin.routes_pods import log_options
from ..backend import PodVerbs
from ..http import closable, finish
from ..views import LogOptions
from .route import KubeletRoute, find_pod, plain, target_of


def routes(backend: PodVerbs) -> tuple[KubeletRoute, ...]:
    """The routes of this file."""

    async def logs(request: web.Request) -> web.StreamResponse:
        container = request.match_info["container"]
        options = _options(request, container)
        target = target_of(request)
        try:
            lines = await backend.open_logs(target, options)
            return await _send(request, lines, is_endless=options.follow)
        except NotFound as error:
            pod = await find_pod(backend, target)
            return plain(_reason(pod, container, error), 400)

    path = "/containerLogs/{namespace}/{pod}/{container}"
    return (KubeletRoute(("GET",), path, logs, is_debugging=True),)


def _options(request: web.Request, container: str) -> LogOptions:
    """Parse the query.

    Raises HTTPBadRequest for an invalid number or time, HTTPUnprocessableEntity for a contradiction.
    """
    try:
        options = log_options(request)
    except InvalidConfig as error:
        raise web.HTTPBadRequest(text=f"Unable to decode query: {error}") from error
    problems = (
        (
            options.since_seconds is not None and options.since_at is not None,
            "sinceTime and sinceSeconds are both set",
        ),
        (
            options.since_seconds is not None and options.since_seconds < 1,
            "sinceSeconds must be greater than 0",
        ),
        (options.limit_bytes is not None and options.limit_bytes < 1, "limitBytes must be greater than 0"),
    )
    for is_so, text in problems:
        if is_so:
            raise web.HTTPUnprocessableEntity(text=f"Invalid request: {text}")
    return replace(options, container=container)


def _reason(pod: Pod, container: str, error: NotFound) -> str:
    """Return why an existing container has no log. Raises HTTPNotFound for an unknown container."""
    statuses = pod.status
    spec = pod.spec
    others = [one.name for one in (*spec.init_containers, *spec.ephemeral_containers)]
    if container not in (*others, *main_names(pod)):
        raise web.HTTPNotFound(text=f'container "{container}" not found in pod "{pod.name}"')
    found = (*statuses.init_container_statuses, *statuses.container_statuses) if statuses is not None else ()
    for status in found:
        waiting = status.state.waiting if status.state is not None else None
        if status.name == container and waiting is not None:
            return f'container "{container}" in pod "{pod.name}" is waiting to start: {waiting.reason}'
    return str(error)


async def _send(request: web.Request, lines: AsyncIterator[bytes], *, is_endless: bool) -> web.StreamResponse:
    """Send a chunked body.

    A failure before the first piece is raised and gets an answer of its own, except for endless logs; a later
    one becomes the last line, as in a kubelet.
    """
    async with aclosing(closable(lines)) as source:
        first = b"" if is_endless else await anext(source, b"")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        if first:
            await response.write(first)
        try:
            async for piece in source:
                await response.write(piece)
        except KubeletxError as error:
            await response.write(f"{error}\n".encode())
    await finish(request, response)
    return response
