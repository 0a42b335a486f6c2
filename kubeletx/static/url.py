"""Static pods from a manifest URL, requested every `check_seconds`.

If a request fails or its status is not 200, the pods are kept, and one warning is logged until a request succeeds. A
body equal to the last one is not parsed again. The source is synced after the first valid answer; until then pods that
an earlier agent process started are kept too. An empty body never removes a pod; on a node without pods from this URL
it counts as a valid answer, as in a kubelet. An empty list removes all pods.

Source: kubelet, pkg/kubelet/config/http.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import structlog

from kubeletx.api import Clock, InvalidConfig, InvalidPod, KubeletxError, TimedOut, Unavailable
from kubeletx.kube.manifests.load import MAX_BYTES, too_large
from kubeletx.pods.model.sources import URL, PodSink

from .manifest import ManifestReader, OnUnknown, ignore_unknown
from .manifest_ownership import ManifestOwnership

if TYPE_CHECKING:
    import aiohttp

log = structlog.get_logger(__name__)

TIMEOUT_SECONDS: Final = 10.0
MAX_INTERIM_ANSWERS: Final = 5


class UrlSource:
    """Pod source of ``--manifest-url``: requests the manifest regularly and delivers its pods.

    The agent runs `run` as a task.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        url: str,
        headers: Mapping[str, Sequence[str]],
        sink: PodSink,
        reader: ManifestReader,
        clock: Clock,
        check_seconds: float = 20.0,
        timeout_seconds: float = TIMEOUT_SECONDS,
        has_earlier_pods: Callable[[], bool] = lambda: False,
        on_unknown: OnUnknown = ignore_unknown,
    ) -> None:
        """`headers`: headers of every request; several values of a name are sent in order.

        `sink`: gets the pods (the pod manager). `has_earlier_pods`: returns True while the node runs pods of this URL
        that an earlier agent process started and that this process has not delivered yet. `on_unknown`: called with
        each pod that has unknown fields. Raises InvalidConfig for an invalid URL.
        """
        self._url = url
        self._origin = shown_url(url)
        self._headers = [(name, value) for name, values in headers.items() for value in values]
        self._sink = sink
        self._reader = reader
        self._clock = clock
        self._check_seconds = check_seconds
        self._timeout_seconds = timeout_seconds
        self._claims = ManifestOwnership(sink, URL)
        self._on_unknown = on_unknown
        self._has_earlier_pods = has_earlier_pods
        self._last: bytes | None = None
        self._is_synced = False
        self._outage = ""

    async def run(self) -> None:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        async with aiohttp.ClientSession(
            timeout=timeout, headers=self._headers, response_class=_response_class()
        ) as session:
            while True:
                await self._ask(session)
                await self._clock.sleep(self._check_seconds)

    async def _ask(self, session: aiohttp.ClientSession) -> None:
        try:
            data = await self._get(session)
        except KubeletxError as err:
            self._begin_outage(str(err))
            return
        if not data.strip():
            if self._claims.has_pods(self._origin) or (not self._is_synced and self._has_earlier_pods()):
                self._begin_outage("the answer is empty")
                return
            self._end_outage()
            self._last = data
            self._set_synced()
            return
        self._end_outage()
        if data != self._last and await self._take(data):
            self._set_synced()
        self._last = data

    def _set_synced(self) -> None:
        if not self._is_synced:
            self._is_synced = True
            self._sink.synced(URL)

    async def _get(self, session: aiohttp.ClientSession) -> bytes:
        import aiohttp

        try:
            async with session.get(self._url) as response:
                if response.status != 200:
                    raise Unavailable(f"the answer is {response.status} {response.reason}")
                data = bytearray()
                async for chunk in response.content.iter_any():
                    data += chunk
                    if len(data) > MAX_BYTES:
                        raise too_large(self._origin, len(data))
                return bytes(data)
        except TimeoutError as err:
            raise TimedOut(f"no answer within {self._timeout_seconds:g} s") from err
        except aiohttp.TooManyRedirects as err:
            raise Unavailable(f"the answer is a redirect, {len(err.history)} times in a row") from err
        except aiohttp.ClientResponseError as err:
            raise Unavailable(f"the answer is not HTTP: {err.message}") from err
        except (aiohttp.ClientError, OSError) as err:
            raise Unavailable(str(err) or type(err).__name__) from err

    async def _take(self, data: bytes) -> bool:
        """Deliver the pods of manifest `data` and return True; if it is invalid, report the error and return False."""
        now = self._clock.now()
        try:
            pods, unknown, _ = await asyncio.to_thread(
                self._reader.read, data, origin=self._origin, source=URL, seen_at=now
            )
        except InvalidPod as err:
            self._claims.set_error(self._origin, err)
            return False
        self._claims.set_pods(self._origin, pods)
        for pod, fields in unknown:
            self._on_unknown(pod, fields)
        return True

    def _begin_outage(self, problem: str) -> None:
        if not self._outage:
            log.warning("Kept the pods of the manifest URL", url=self._origin, err=problem)
        self._outage = problem

    def _end_outage(self) -> None:
        if self._outage:
            log.info("Manifest URL answered again", url=self._origin)
        self._outage = ""


def _response_class() -> type[aiohttp.ClientResponse]:
    """Return aiohttp's class of answers with a limit of interim (1xx) answers, which aiohttp itself lacks."""
    import aiohttp
    from aiohttp.connector import Connection

    class Response(aiohttp.ClientResponse):
        async def start(self, connection: Connection) -> aiohttp.ClientResponse:
            protocol: Any = connection.protocol
            read, left = protocol.read, MAX_INTERIM_ANSWERS + 1

            async def read_limited() -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise aiohttp.ClientError("too many 1xx informational responses")
                return await read()

            protocol.read = read_limited
            try:
                return await super().start(connection)
            finally:
                del protocol.read

    return Response


def shown_url(url: str) -> str:
    """Return the URL without user name and password, for messages.

    Raises InvalidConfig if it is not an http or https URL with a host.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidConfig(
            field="--manifest-url",
            problem=f"{url!r} is not a web address",
            fix="use http://HOST/PATH or https",
        )
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
