"""Routes of pods: list, watch, apply, replace, delete, logs, standby."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from aiohttp import web
from msgspec.structs import replace

from kubeletx.api import InvalidConfig, InvalidPod, KubeletxError, NotFound
from kubeletx.kube.manifests.load import LoadedPod, load_all
from kubeletx.kube.manifests.objects import LoadedObject, shown
from kubeletx.kube.manifests.unknown_fields import strict_error, unknown
from kubeletx.kube.types.core import Pod, PodList

from ..backend import ObjectVerbs, PodVerbs, StandbyVerbs
from ..http import flag, json_response, query_seconds, read_json, send_log, stream_lines
from ..status import to_status
from ..views import ApplyReport, ApplyResult, DeleteOptions, LogOptions, PodTarget
from .tasks import Tasks


def routes(
    backend: PodVerbs, standby: StandbyVerbs, objects: ObjectVerbs, tasks: Tasks
) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes that list, watch, change and delete pods, freeze them, and read their logs.

    `objects`: applies the config maps, secrets and claims of manifests. `tasks` runs changes to their end if the client
    disconnects.
    """

    async def pods(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.watch_pods(), None)
        return json_response(PodList(items=tuple(await backend.list_pods())))

    async def one(request: web.Request) -> web.StreamResponse:
        return json_response(find_pod(await backend.list_pods(), target_of(request)))

    async def history(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.pod_history(target_of(request)))

    async def put(request: web.Request) -> web.StreamResponse:
        body, origin = await request.read(), request.query.get("origin", "request")
        validation = _validation(request)
        wanted = await asyncio.to_thread(load_all, body, origin)  # ten megabytes of YAML take seconds
        results = [await put_object(request, loaded, validation) for loaded in wanted.objects]
        results += [await change(request, loaded, validation) for loaded in wanted.pods]
        return json_response(ApplyReport(items=tuple(results)))

    async def put_object(request: web.Request, loaded: LoadedObject, validation: str) -> ApplyResult:
        item, unknown_fields = loaded
        result = ApplyResult(action="failed", object=shown(item))
        if unknown_fields and validation == STRICT:
            return replace(result, error=to_status(_strict(unknown_fields, item.kind)))
        try:
            work = objects.apply_object(item, dry_run=flag(request, "dryRun"))
            result = await tasks.complete(work, f"apply {item.kind} {item.metadata.name}")
        except KubeletxError as error:
            return replace(result, error=to_status(error))
        warned = unknown_fields if validation == WARN else ()
        return replace(result, warnings=tuple(unknown(field) for field in warned))

    async def change(request: web.Request, loaded: LoadedPod, validation: str) -> ApplyResult:
        pod, unknown_fields = loaded
        force, dry_run = flag(request, "force"), flag(request, "dryRun")
        if unknown_fields and validation == STRICT:
            return ApplyResult(action="failed", pod=pod, error=to_status(_strict(unknown_fields)))
        if flag(request, "replace"):
            work = backend.replace_pod(pod, force, dry_run=dry_run)
        else:
            work = backend.apply_pod(pod, dry_run=dry_run)
        try:
            result = await tasks.complete(work, f"apply {pod.ref}")
        except KubeletxError as error:
            result = ApplyResult(action="failed", pod=pod, error=to_status(error))
        warned = unknown_fields if validation == WARN else ()
        return replace(result, warnings=(*result.warnings, *(unknown(field) for field in warned)))

    async def delete(request: web.Request) -> web.StreamResponse:
        target = target_of(request)
        options = await read_json(request, DeleteOptions)
        return json_response(
            await tasks.complete(backend.delete_pod(target, options), f"delete {target.ref}")
        )

    async def logs(request: web.Request) -> web.StreamResponse:
        options = log_options(request)
        lines = await backend.open_logs(target_of(request), options)
        return await send_log(
            request, lines, content_type="text/plain; charset=utf-8", is_endless=options.follow
        )

    async def restart(request: web.Request) -> web.StreamResponse:
        target, container = target_of(request), request.query.get("container", "")
        work = backend.restart(target, container, query_seconds(request, "timeoutSeconds", 60.0))
        return json_response({"items": await tasks.complete(work, f"restart {target.ref}")})

    async def set_standby(request: web.Request) -> web.StreamResponse:
        target, verb = target_of(request), request.match_info["verb"]
        work = standby.set_standby(target, verb, query_seconds(request, "timeoutSeconds", 60.0))
        return json_response(await tasks.complete(work, f"pod {verb} {target.ref}"))

    return (
        web.get("/v1/pods", pods),
        web.post("/v1/pods", put),
        web.get("/v1/pods/{namespace}/{name}", one),
        web.delete("/v1/pods/{namespace}/{name}", delete),
        web.get("/v1/pods/{namespace}/{name}/log", logs),
        web.get("/v1/pods/{namespace}/{name}/history", history),
        web.post("/v1/pods/{namespace}/{name}/restart", restart),
        web.post("/v1/pods/{namespace}/{name}/standby/{verb}", set_standby),
    )


def _validation(request: web.Request) -> str:
    """Return the query parameter ``fieldValidation`` of the Kubernetes API: Strict, Warn (default) or Ignore.

    It says what happens to unknown fields of a manifest. Raises InvalidConfig for another value.
    """
    wanted = request.query.get("fieldValidation", WARN)
    if wanted not in (STRICT, WARN, IGNORE):
        problem = f"{wanted[:_MAX_DIGITS]!r} is unknown"
        raise InvalidConfig(field="fieldValidation", problem=problem, fix=f"use {STRICT}, {WARN} or {IGNORE}")
    return wanted


def _strict(fields: tuple[str, ...], kind: str = "Pod") -> InvalidPod:
    fix = "correct the manifest, or use --validate=warn"
    return InvalidPod(field="", problem=strict_error(fields, kind), fix=fix)


def target_of(request: web.Request) -> PodTarget:
    """Return the pod that a request names: namespace and name in the path, optionally ``uid`` in the query."""
    info = request.match_info
    return PodTarget(namespace=info["namespace"], name=info["name"], uid=request.query.get("uid", ""))


def find_pod(pods: Sequence[Pod], target: PodTarget) -> Pod:
    """Return the one of `pods` that `target` names.

    Raises NotFound, whose message suggests a pod of this name in another namespace, or one of a similar name.
    """
    for pod in pods:
        if (pod.namespace, pod.name) == (target.namespace, target.name) and target.uid in ("", pod.uid):
            return pod
    import difflib  # here: only a typo needs its 0.5 MiB

    elsewhere = [pod.namespace for pod in pods if pod.name == target.name]
    near = difflib.get_close_matches(
        target.name, [p.name for p in pods if p.namespace == target.namespace], n=1
    )
    if elsewhere:
        hint = f"; it is in namespace {elsewhere[0]} (-n {elsewhere[0]})"
    else:
        hint = f"; did you mean {near[0]!r}?" if near else ""
    raise NotFound(f"pod {target.ref} not found{hint}")


STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
MAX_NUMBER = (1 << 63) - 1
_MAX_DIGITS = 40


def log_options(request: web.Request) -> LogOptions:
    """Parse the query parameters of a log request, named as in the Kubernetes API. Raises InvalidConfig."""
    query = request.query
    return LogOptions(
        container=query.get("container", ""),
        follow=flag(request, "follow"),
        previous=flag(request, "previous"),
        timestamps=flag(request, "timestamps"),
        tail_lines=_number(query.get("tailLines"), "tailLines"),
        since_seconds=_number(query.get("sinceSeconds"), "sinceSeconds"),
        since_at=_time(query.get("sinceTime"), "sinceTime"),
        limit_bytes=_number(query.get("limitBytes"), "limitBytes"),
    )


def _number(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    is_whole = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_whole or int(text) > MAX_NUMBER:
        problem = f"{text[:_MAX_DIGITS]!r} is not a whole number of 64 bits"
        raise InvalidConfig(field=field, problem=problem, fix="give 0 or more")
    return int(text)


def _time(text: str | None, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment.astimezone(UTC)  # OverflowError outside the years 1 to 9999
    except (ValueError, OverflowError):
        moment = datetime.min
    if moment.tzinfo is None:
        raise InvalidConfig(field=field, problem=f"{text!r} is not a time", fix="write 2006-01-02T15:04:05Z")
    return moment
