"""``/containerLogs``: sends the log of a container. ``kubectl logs`` reads it through the API server."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from kubeletx.api import InvalidConfig, NotFound
from kubeletx.kube.manifests.units import main_names
from kubeletx.kube.types.core import Pod

from ..admin.routes_pods import log_options
from ..backend import PodVerbs
from ..http import send_log
from ..views import LogOptions
from .route import KubeletRoute, find_pod, plain, target_of

_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
"""The kubelet's texts for these reasons of a waiting container; it shows other reasons as they are."""


def routes(backend: PodVerbs) -> tuple[KubeletRoute, ...]:
    """Return the route ``/containerLogs/NAMESPACE/POD/CONTAINER``."""

    async def logs(request: web.Request) -> web.StreamResponse:
        container = request.match_info["container"]
        options = _options(request, container)
        target = target_of(request)
        try:
            lines = await backend.open_logs(target, options)
            return await send_log(request, lines, is_endless=options.follow)
        except NotFound as error:
            pod = await find_pod(backend, target)
            return plain(_reason(pod, container, error, previous=options.previous), 400)

    path = "/containerLogs/{namespace}/{pod}/{container}"
    return (KubeletRoute(("GET",), path, logs, is_debugging=True),)


def _options(request: web.Request, container: str) -> LogOptions:
    """Return the log options that the query and the container's name give.

    Raises HTTPBadRequest for an invalid number or time, HTTPUnprocessableEntity for two options that exclude each
    other and for a number below 1.
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


def _reason(pod: Pod, container: str, error: NotFound, *, previous: bool) -> str:
    """Return a text that says why the container has no log. Raises HTTPNotFound for an unknown container.

    `error`: its message is returned if the pod's status gives no reason. `previous`: the log of the attempt before was
    requested, which the present state does not explain.
    """
    statuses = pod.status
    spec = pod.spec
    others = [other.name for other in (*spec.init_containers, *spec.ephemeral_containers)]
    if container not in (*others, *main_names(pod)):
        raise web.HTTPNotFound(text=f'container "{container}" not found in pod "{pod.name}"')
    if previous:
        return str(error)
    listed = (*statuses.init_container_statuses, *statuses.container_statuses) if statuses is not None else ()
    for status in listed:
        waiting = status.state.waiting if status.state is not None else None
        if status.name == container and waiting is not None:
            why = _WAITING.get(waiting.reason or "", waiting.reason)
            return f'container "{container}" in pod "{pod.name}" is waiting to start: {why}'
    return str(error)
