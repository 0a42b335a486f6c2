"""Shared code of the kubelet API's routes: the type of a route, text responses, errors as text.

An API server puts the body of an error response into its own message, so errors are text here, not Status objects.
Only the error response to an upgrade request (exec, attach, port-forward) is a Status: kubectl gets it unchanged and
parses it as YAML, and would take a text with one colon for an empty Status. Source: kubelet,
pkg/kubelet/server/server.go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from ..access.authorization import PROXY
from ..http import failure_of, json_response
from ..views import PodTarget

if TYPE_CHECKING:
    from kubeletx.kube.types.core import Pod

    from ..backend import PodVerbs

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class KubeletRoute(msgspec.Struct, frozen=True):
    """One route of the kubelet's API.

    `subresources`: the user needs a right on one of these, checked in this order. `is_debugging`: the setting
    enableDebuggingHandlers can disable the route.
    """

    methods: tuple[str, ...]
    path: str
    handler: Handler
    subresources: tuple[str, ...] = (PROXY,)
    is_debugging: bool = False


def plain(text: str, code: int = 200) -> web.Response:
    """Make a plain text response with the HTTP status `code`."""
    return web.Response(text=text, status=code)


def failure(error: BaseException, *, is_upgrade: bool = False) -> web.Response:
    """Make a response for an error: its message as text, with its HTTP code.

    `is_upgrade`: the request asked for a protocol upgrade; then the body is a Status object.
    """
    status = failure_of(error)
    if is_upgrade:
        return json_response(status, status.code)
    return plain(status.message, status.code)


def target_of(request: web.Request) -> PodTarget:
    """Return the pod that the request's path names."""
    info = request.match_info
    return PodTarget(namespace=info["namespace"], name=info["pod"], uid=info.get("uid", ""))


async def find_pod(backend: PodVerbs, target: PodTarget) -> Pod:
    """Return the pod that `target` names. Raises HTTPNotFound with the kubelet's message."""
    for pod in await backend.list_pods():
        if (pod.namespace, pod.name) == (target.namespace, target.name) and target.uid in ("", pod.uid):
            return pod
    raise web.HTTPNotFound(text=f'pod "{target.name}" not found in namespace "{target.namespace}"')
