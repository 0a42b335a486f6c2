"""Handles one request from the socket to the answer.

The steps are faults, authentication, authorization, then the operation. They are in the order of a real
server's handler chain, so that a wrong request gets the same refusal: 401 before 403 before 404. Source:
apiserver, pkg/server/config.go DefaultBuildHandlerChain; pkg/endpoints/handlers.
"""

from __future__ import annotations

import asyncio
import json
import weakref
from typing import Any, Final

import msgspec
from aiohttp import web

from . import discovery
from .authorization import Authorizer
from .catalog import Catalog
from .disruption import TwoBudgets
from .errors import (
    Json,
    StatusError,
    bad_request,
    method_not_allowed,
    no_path,
    too_large_version,
    unsupported_media,
)
from .faults import DropConnection, Faults
from .listing import list_objects, matcher_of, version_of
from .managed_fields import manager_of
from .node_proxy import NodeProxy
from .node_restriction import restrict
from .registry import Registry, Target
from .request_log import RequestLog, RequestRecord
from .requests import Asked, parse
from .resources import resource
from .reviews import Tokens, review_access
from .settings import Settings
from .store import Change, Store, Stored
from .tables import table_of, wants_table
from .users import User, user_of
from .watching import Bookmark, Cut, End, Watch

_JSON: Final = "application/json"
_BODIES: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_PROXIED: Final = ("log", "exec", "attach", "portforward", "proxy")
_TURNS: Final = 20
_HEALTH: Final = ("/healthz", "/livez", "/readyz")


class Handler:
    """Answers the requests of clients from one store. Runs in the server's event loop.

    `watches`: the open watches.
    """

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        settings: Settings,
        tokens: Tokens,
        authorizer: Authorizer,
        proxy: NodeProxy,
        faults: Faults,
        log: RequestLog,
    ) -> None:
        self.watches: set[Watch] = set()
        self._transports: weakref.WeakSet[asyncio.Transport] = weakref.WeakSet()
        self._store = store
        self._catalog = Catalog(store)
        self._registry = registry
        self._settings = settings
        self._tokens = tokens
        self._authorizer = authorizer
        self._proxy = proxy
        self._faults = faults
        self._log = log
        self.is_open = True
        """False while the server is stopped: a connection whose TLS handshake ends later gets no answer."""

    async def abort_connections(self) -> None:
        """Abort the connections of all clients, without waiting for peers that close slowly."""
        for transport in list(self._transports):
            transport.abort()
        for _ in range(
            _TURNS
        ):  # TLS aborts its socket, then the protocol is notified, each one loop turn later
            await asyncio.sleep(0)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Apply faults to one request and answer it.

        The request's record in the request log gets the status code.
        """
        assert isinstance(request.transport, asyncio.Transport)
        self._transports.add(request.transport)
        record = self._log.note(
            request.method, request.path, dict(request.query), request.headers.get("User-Agent", "")
        )
        try:
            if not self.is_open:
                raise DropConnection
            await self._faults.pass_frozen()
            is_watch = request.query.get("watch", "").lower() in ("true", "1")
            await self._faults.meet(request.method, request.path, is_watch)
            response = await self._answer(request, record)
        except DropConnection:
            request.transport.abort()
            raise asyncio.CancelledError from None
        except StatusError as err:
            response = _reply(err.status, err.code, err.headers)
        record.code = response.status
        return response

    async def _answer(self, request: web.Request, record: RequestRecord) -> web.StreamResponse:
        user = self._user(request)
        record.user = user.name
        asked = parse(request.method, request.path, request.query, user, self._catalog.find)
        if asked is None:
            record.verb = request.method.lower()
            return self._answer_path(request, user)
        record.verb = asked.verb
        self._authorizer.check(asked)
        if asked.subresource in _PROXIED:
            return await self._proxy.forward(request, asked)
        if asked.verb == "watch":
            return await self._watch(request, asked)
        await self._wait_for_version(asked)
        return await self._operate(request, asked)

    def _user(self, request: web.Request) -> User:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        authorization = request.headers.get("Authorization", "")
        return user_of(certificate, authorization, self._tokens.find_user, self._settings.now())

    def _answer_path(self, request: web.Request, user: User) -> web.Response:
        self._authorizer.check_path(user, request.method.lower(), request.path)
        if request.path.startswith(_HEALTH):
            return web.Response(text="ok")
        found = discovery.discover(request.path, self._catalog)
        if found is not None:
            return _reply(found)
        if request.path.startswith(f"{resource('pods').base}/"):
            raise no_path()
        return web.Response(text="404 page not found\n", status=404)

    async def _wait_for_version(self, asked: Asked) -> None:
        """Raise StatusError 504 if a GET asks for a resourceVersion newer than the store's.

        Source: cacher, waitUntilFreshAndBlock.
        """
        if asked.verb == "get":
            version = version_of(asked)
            if version > self._store.revision:
                raise too_large_version(version, self._store.revision)

    async def _operate(self, request: web.Request, asked: Asked) -> web.Response:
        target = Target(
            resource=asked.resource,
            namespace=asked.namespace,
            name=asked.name,
            subresource=asked.subresource,
            manager=manager_of(request.query.get("fieldManager", ""), request.headers.get("User-Agent", "")),
        )
        admit = restrict(asked, self._store, self._authorizer)
        match asked.verb:
            case "get" if asked.resource.stored:
                return self._shown(request, asked, self._registry.get(target).raw)
            case "list" if asked.resource.stored:
                return self._shown(request, asked, list_objects(asked, self._store))
            case "create":
                return await self._create(request, asked, target)
            case "update" if asked.name:
                stored, created = self._registry.update(target, await _body(request), admit)
                return _object(stored, 201 if created else 200)
            case "patch" if asked.name:
                content = await request.read()
                media_type = request.content_type
                return _object(self._registry.patch(target, _decode(content), media_type, admit))
            case "delete" if not asked.subresource:
                stored, gone = self._registry.delete(target, await _options(request), admit)
                return _deleted(asked, stored, gone)
            case "deletecollection":
                return await self._delete_all(request, asked)
            case _:
                raise method_not_allowed()

    def _shown(self, request: web.Request, asked: Asked, raw: bytes) -> web.Response:
        """Return the response for the JSON object `raw`, converted to a Table if the client accepts one."""
        if wants_table(request.headers.get("Accept", "")):
            return _reply(table_of(asked.resource, json.loads(raw), self._settings.now()))
        return web.Response(body=raw, content_type=_JSON)

    async def _create(self, request: web.Request, asked: Asked, target: Target) -> web.Response:
        body = await _body(request)
        admit = restrict(asked, self._store, self._authorizer)
        match asked.resource.plural, asked.subresource:
            case "tokenreviews", _:
                return _reply(self._tokens.review(body), 201)
            case "subjectaccessreviews", _:
                return _reply(review_access(body, self._authorizer), 201)
            case "selfsubjectaccessreviews", _:
                return _reply(review_access(body, self._authorizer, asked.user), 201)
            case "serviceaccounts", "token":
                admit("CREATE", None, body)
                return _reply(self._tokens.request(target, body), 201)
            case "pods", "binding":
                self._registry.bind(target, body)
                return _reply(_success(), 201)
            case "pods", "eviction":
                try:
                    self._registry.evict(target, body, admit)
                except TwoBudgets as err:
                    return _reply(err.status, 201)
                return _reply(_success(), 201)
            case "certificatesigningrequests", "":
                body = _with_requester(body, asked.user)
            case _, subresource if subresource or asked.name:
                raise method_not_allowed()
        dry_run = request.query.get("dryRun") == "All"
        return _object(self._registry.create(target, body, admit, dry_run), 201)

    async def _delete_all(self, request: web.Request, asked: Asked) -> web.Response:
        options = await _options(request)
        matches = matcher_of(asked)
        for stored in list(self._store.all(asked.resource, asked.namespace)):
            if matches is None or matches(stored.value):
                metadata = stored.value["metadata"]
                target = Target(
                    resource=asked.resource, namespace=metadata.get("namespace", ""), name=metadata["name"]
                )
                self._registry.delete(target, options)
        return web.Response(body=list_objects(asked, self._store), content_type=_JSON)

    async def _watch(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        watch = Watch(asked, self._store, self._settings)
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        lines = watch.open()
        self.watches.add(watch)
        try:
            await response.prepare(request)
            for line in lines:
                await response.write(line)
            await self._tell(request, response, watch)
        except ConnectionResetError:
            pass
        finally:
            self.watches.discard(watch)
            watch.close()
        return response

    async def _tell(self, request: web.Request, response: web.StreamResponse, watch: Watch) -> None:
        """Write the events of a watch until the test or the timeout ends the watch."""
        cut_after: int | None = None
        while True:
            order = await watch.next()
            await self._faults.pass_frozen()
            match order:
                case End():
                    return
                case Cut(after_bytes=None):
                    _hang_up(request)
                    return
                case Cut(after_bytes=count):
                    cut_after = count
                    continue
                case Bookmark():
                    line = watch.bookmark()
                case Change():
                    line = watch.line(order)
            if line is None:
                continue
            if cut_after is not None:
                await response.write(line[:cut_after])
                _hang_up(request)
                return
            await response.write(line)


def _hang_up(request: web.Request) -> None:
    """Close the connection in the middle of the answer, and raise ConnectionResetError."""
    if request.transport is not None:
        request.transport.close()
    raise ConnectionResetError


async def _body(request: web.Request) -> Any:
    if request.content_type not in (_JSON, "application/octet-stream", "application/yaml"):
        raise unsupported_media(_BODIES)
    return _decode(await request.read())


def _decode(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as err:
        raise bad_request(
            f"the object provided is unrecognized: couldn't get version/kind; json parse error: {err}"
        ) from err


async def _options(request: web.Request) -> Json:
    content = await request.read()
    options: Json = _decode(content) if content else {}
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    return options


def _with_requester(body: Any, user: User) -> Json:
    """Return the certificate request with its requesting user and the user's groups in the spec.

    Source: registry/certificates strategy PrepareForCreate.
    """
    spec = {**(body.get("spec") or {}), "username": user.name, "groups": list(user.groups)}
    return {**body, "spec": spec}


def _success() -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _deleted(asked: Asked, stored: Stored, gone: bool) -> web.Response:
    if asked.resource.returns_deleted or not gone:
        return _object(stored)
    metadata = stored.value["metadata"]
    details: Json = {"name": metadata["name"]}
    details |= {"group": asked.resource.group} if asked.resource.group else {}
    details |= {"kind": asked.resource.plural, "uid": metadata["uid"]}
    made = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return _reply(made)


def _object(stored: Stored, code: int = 200) -> web.Response:
    return web.Response(body=stored.raw, status=code, content_type=_JSON)


def _reply(value: Json, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=code, content_type=_JSON, headers=headers)
