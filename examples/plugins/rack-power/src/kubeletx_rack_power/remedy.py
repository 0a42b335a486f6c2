"""The remedy: switches nodes off through the HTTP interface of a rack's power controller.

``PUT URL/operations/ID`` with node and action starts an operation; the controller of the rack recognises a repeat by its ID.
``GET`` of the same path returns ``{"state": "running"|"done"|"failed"}``, or 404 if the operation never began.
"""

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

from kubeletx.api import RemedyHost, RemedyRequest, RemedyResult, RemedyState

SECONDS = 10.0


class RackPower:
    """Switches nodes off. Parameters: ``url`` of the power controller. Implements `kubeletx.api.Remedy`."""

    def __init__(self, settings: None, host: RemedyHost) -> None:
        """Keep the host, as every factory does; `settings` is None, since remedies have none."""
        self._host = host

    async def remedy(self, request: RemedyRequest) -> RemedyResult:
        """Start the operation; a repeat returns the state of the first one."""
        return await self._host.blocking(ask, request, {"node": request.node, "action": "off"})

    async def status(self, request: RemedyRequest) -> RemedyResult:
        """Read the state of the operation."""
        return await self._host.blocking(ask, request, None)


def ask(request: RemedyRequest, order: dict[str, str] | None) -> RemedyResult:
    """Send the order, or read the state if it is None. Runs on a thread."""
    url = f"{request.parameters['url']}/operations/{quote(request.operation, safe='')}"
    data = None if order is None else json.dumps(order).encode()
    question = urllib.request.Request(url, data, method="GET" if data is None else "PUT")
    try:
        with urllib.request.urlopen(question, timeout=SECONDS) as answer:
            content: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404 and order is None:
            return RemedyResult(state=RemedyState.NOT_STARTED)
        return RemedyResult(state=RemedyState.UNKNOWN, message=f"{url}: HTTP status {error.code}")
    states = {"running": RemedyState.RUNNING, "done": RemedyState.DONE, "failed": RemedyState.FAILED}
    return RemedyResult(state=states.get(content.get("state", ""), RemedyState.UNKNOWN))
