"""``/debug/flags/v``: changes the log verbosity of a running agent. Source: kubelet, InstallDebugFlagsHandler.

There is no ``/debug/pprof``: Go's profiles do not apply. py-spy inspects a running agent instead.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
from aiohttp import web

from .route import KubeletRoute, plain

log = structlog.get_logger(__name__)

_LARGEST = 2**32 - 1


def routes(set_verbosity: Callable[[int], None], *, enabled: bool) -> tuple[KubeletRoute, ...]:
    """Return the route ``/debug/flags/v``.

    `set_verbosity`: function that the route calls with the new level. `enabled` False: the route answers 405.
    """

    async def verbosity(request: web.Request) -> web.StreamResponse:
        if not enabled:
            return plain("flags endpoint is disabled.", 405)
        if request.method != "PUT":
            return plain("unsupported http method", 406)
        text = await request.text()
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= _LARGEST):
            return plain(f"{text[:20]!r} is not a verbosity; send a number such as 4", 400)
        set_verbosity(int(text))
        log.info("Changed the verbosity of the log", verbosity=int(text))
        return plain(f"successfully set klog.logging.verbosity to {text}")

    return (KubeletRoute(("GET", "PUT", "POST"), "/debug/flags/v", verbosity, is_debugging=True),)
