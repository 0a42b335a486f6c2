"""``/flagz`` and ``/statusz``: the settings and the state of the agent, as text or as objects of config.k8s.io. Also ``/debug/flags/v``.

The answer is text unless the client asks for the object Flagz or Statusz in its Accept header
(``application/json;v=v1beta1;g=config.k8s.io;as=Flagz``). Source: apiserver, pkg/server/{flagz,statusz}; KEP 4827, 4828.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog
from aiohttp import web

from kubeletx.api import Clock
from kubeletx.kube.text.yaml import dump_yaml

from ..access.authorization import PROXY
from ..backend import AboutVerbs
from ..http import json_response
from ..views import ConfigValue
from .route import KubeletRoute, plain

GROUP: Final = "config.k8s.io"
COMPONENT: Final = "kubelet"
"""Component name that clients of a kubelet expect."""
OLD: Final = "v1alpha1"
VERSIONS: Final = ("v1beta1", OLD)
_TEXT: Final = ("text/plain", "text/*", "*/*", "")
_HEADER: Final = """
{component} {page}
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for \
debugging purposes only.
"""

log = structlog.get_logger(__name__)
_LARGEST = 2**32 - 1


def routes(backend: AboutVerbs, others: Iterable[KubeletRoute], clock: Clock) -> tuple[KubeletRoute, ...]:
    """Return the routes ``/flagz`` and ``/statusz``. `others`: all other routes; ``/statusz`` lists their paths."""
    paths = sorted({f"/{route.path.split('/')[1]}" for route in others} | {"/flagz"})

    async def flagz(request: web.Request) -> web.StreamResponse:
        flags = flag_values(await backend.config_view())
        text = "".join(f"{name}={value}\n" for name, value in sorted(flags.items()))
        return _answer(request, "Flagz", {"flags": flags}, text)

    async def statusz(request: web.Request) -> web.StreamResponse:
        about = await backend.version()
        seconds = max(0, int((clock.now() - about.started_at).total_seconds()))
        fields = {
            "startTime": about.started_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "uptimeSeconds": seconds,
            "goVersion": "",
            "binaryVersion": about.version,
            "paths": paths,
        }
        return _answer(request, "Statusz", fields, _status(about.started_at, seconds, about.version, paths))

    return (
        KubeletRoute(("GET",), "/flagz", flagz, ("configz", PROXY)),
        KubeletRoute(("GET",), "/statusz", statusz, ("statusz", PROXY)),
    )


def flag_values(values: Iterable[ConfigValue]) -> dict[str, str]:
    """Return the effective value of each flag, as text, by the flag's name. Secrets in `values` are masked already."""
    return {row.flag: _shown(row.value) for row in values if row.flag}


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case dict():
            return ",".join(f"{name}={_shown(item)}" for name, item in value.items())
        case list() | tuple():
            return ",".join(_shown(item) for item in value)
    return str(value)


def _status(started_at: datetime, seconds: int, version: str, paths: list[str]) -> str:
    up = f"{seconds // 3600} hr {seconds // 60 % 60:02d} min {seconds % 60:02d} sec"
    return (
        f"\nStarted: {started_at:%a %b %e %H:%M:%S UTC %Y}\nUp: {up}\nPython version: {platform.python_version()}\n"
        f"Binary version: {version}\n\nPaths: {' '.join(paths)}\n"
    )


def _answer(request: web.Request, kind: str, fields: Mapping[str, Any], text: str) -> web.Response:
    for media, parameters in _accepted(request.headers.get("Accept", "")):
        if media in _TEXT:
            head = _HEADER.format(component=COMPONENT, page=kind.lower())
            return plain(head + text)
        version = parameters.get("v", "")
        if parameters.get("as") != kind or parameters.get("g") != GROUP or version not in VERSIONS:
            continue
        value = {"kind": kind, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": COMPONENT}, **fields}
        response = _structured(media, value)
        if response is not None:
            if version == OLD:
                response.headers["Warning"] = (
                    f'299 - "This version of the {kind.lower()} endpoint is deprecated."'
                )
            return response
    raise web.HTTPNotAcceptable(
        text=f"ask for text/plain, or for application/json;v=v1beta1;g={GROUP};as={kind}"
    )


def _structured(media: str, value: Any) -> web.Response | None:
    if media == "application/json":
        return json_response(value)
    if media == "application/yaml":
        return web.Response(text=dump_yaml(value), content_type="application/yaml")
    return None


def _accepted(header: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield the media types of an Accept header in order, each with its parameters."""
    for part in header.split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        pairs = (word.partition("=") for word in parameters)
        yield media.lower(), {name: value for name, _, value in pairs}


def verbosity_routes(set_verbosity: Callable[[int], None], *, enabled: bool) -> tuple[KubeletRoute, ...]:
    """Return the route ``/debug/flags/v``, which changes the log verbosity. Source: kubelet, InstallDebugFlagsHandler.

    There is no ``/debug/pprof``: Go's profiles do not apply. py-spy inspects a running agent instead.
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
