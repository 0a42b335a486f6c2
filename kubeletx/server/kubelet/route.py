"""Shared code of the kubelet API's routes: their table's row, text answers, errors as text.

API servers put the body of a refusal into their own message, so errors are text here and not Status objects. Only the
answer to an upgrade is a Status: kubectl gets it unchanged and reads it as YAML, where text with one colon would be an
empty Status. Source: kubelet, pkg/kubelet/server/server.go.
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

    `subresources`: the user needs a right on one of these, checked in this order. `is_debugging`: belongs to
    the group that can be disabled.
    """

    methods: tuple[str, ...]
    path: str
    handler: Handler
    subresources: tuple[str, ...] = (PROXY,)
    is_debugging: bool = False


def plain(text: str, code: int = 200) -> web.Response:
    """Make a text response."""
    return web.Response(text=text, status=code)


def failure(error: BaseException, *, is_upgrade: bool = False) -> web.Response:
    """Make a response with the error's message and HTTP code.

    `is_upgrade`: the request asked for an upgrade, so the body is a Status.
    """
    status = failure_of(error)
    if is_upgrade:
        return json_response(status, status.code)
    return plain(status.message, status.code)


def target_of(request: web.Request) -> PodTarget:
    """The pod that the path names."""
    info = request.match_info
    return PodTarget(namespace=info["namespace"], name=info["pod"], uid=info.get("uid", ""))


async def find_pod(backend: PodVerbs, target: PodTarget) -> Pod:
    """Return the target among the backend's pods. Raises HTTPNotFound with the kubelet's message."""
    for pod in await backend.list_pods():
        if (pod.namespace, pod.name) == (target.namespace, target.name) and target.uid in ("", pod.uid):
            return pod
    raise web.HTTPNotFound(text=f'pod "{target.name}" not found in namespace "{target.namespace}"')
