"""Remedies of other operators with templates as medik8s has them, such as FenceAgentsRemediationTemplate.

The template's ``spec.template`` becomes an object of the kind without ``Template``, with the node's name, in the template's
namespace. The operator that watches this kind repairs the node and writes conditions:

    Succeeded True    done           Succeeded False    failed           anything else until the deadline    unknown

After the deadline the object gets annotation ``remediation.medik8s.io/nhc-timed-out``, which makes the operator stop. The object
stays until the flow has ended (`ExternalAction.clean`): operators undo their isolation when it is deleted, and in a repeat it
shows what was done. An object of another owner is never changed.

Source: medik8s, common/pkg/annotations and common/pkg/conditions; node-healthcheck-operator, its page on configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kubeletx.api import AlreadyExists, Clock, Conflict, InvalidConfig, KubeletxError, NotFound, TimedOut
from kubeletx.api.waiting import within
from kubeletx.kube.client import Patch, Resource
from kubeletx.kube.types.custom import CustomObject
from kubeletx.kube.types.meta import ApiStruct

from ..model import FenceMethod, MethodResult, NodeView, RemedyOutcome, RemedyTask
from .pod_template import REMEDY_OPERATION, with_node_name
from .requests import answered, done, not_done

if TYPE_CHECKING:
    from kubeletx.kube.client import KubeClient

T = TypeVar("T")

TIMED_OUT: Final = "remediation.medik8s.io/nhc-timed-out"
NODE_NAME: Final = "remediation.medik8s.io/node-name"
TEMPLATE_NAME: Final = "remediation.medik8s.io/template-name"
_TEMPLATE: Final = "Template"
_STOP_SECONDS: Final = 15.0
"""Deadline for the annotation of an object that had no result in time."""


class _ServedResource(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = True


class _ServedResources(ApiStruct, frozen=True, kw_only=True):
    resources: tuple[_ServedResource, ...] = ()


class ExternalAction:
    """Runs methods of kind ``external``. A method's definition has apiVersion, kind, name and namespace of the template."""

    def __init__(
        self, client: KubeClient, *, clock: Clock, namespace: str, poll_seconds: float = 1.0
    ) -> None:
        """`namespace`: of templates whose reference has none. `poll_seconds`: time between two looks at an object."""
        self._client, self._clock, self._namespace = client, clock, namespace
        self._poll_seconds = poll_seconds

    async def run(self, task: RemedyTask) -> RemedyOutcome:
        """Create the object and wait for its result. FAILED: nothing was created, or the operator gave up."""
        acts, path = task.is_repeat, ""
        try:
            async with within(task.method.seconds, f"remedy {task.method.name!r} has no result"):
                kind = self._kind(task.method)
                path = await self._path(task.method, kind, task.node.name)
                if not task.is_repeat:
                    await self._make_room(task, path)
                    manifest = await self._manifest(task, kind)
                    acts = True
                    if problem := await self._create(path, manifest):
                        return RemedyOutcome(result=MethodResult.FAILED, message=problem)
                return await self._result_of(task, path)
        except TimedOut as error:
            if acts and path:
                await self._give_up(task, path)
            return not_done(acts, error)
        except KubeletxError as error:
            return not_done(acts, error)

    async def clean(self, node: NodeView, method: FenceMethod) -> None:
        """Delete the object for this node once the flow has ended, if this controller made it. Raises KubeletxError."""
        with contextlib.suppress(NotFound):
            path = await self._path(method, self._kind(method), node.name)
            found = await self._client.get(path, CustomObject)
            if REMEDY_OPERATION in found.metadata.annotations:
                await self._client.delete(path, uid=found.metadata.uid)

    def _kind(self, method: FenceMethod) -> str:
        kind = str(method.definition["kind"])
        if not kind.endswith(_TEMPLATE) or kind == _TEMPLATE:
            raise InvalidConfig(
                obj=f"remedy {method.name}",
                field="external.kind",
                problem=f"{kind!r} is not the kind of a template",
                fix="write a kind that ends with Template, such as SelfNodeRemediationTemplate",
            )
        return kind.removesuffix(_TEMPLATE)

    async def _path(self, method: FenceMethod, kind: str, name: str) -> str:
        """Return the path of an object of this kind in the template's group and namespace. Raises NotFound."""
        group, _, version = str(method.definition["apiVersion"]).partition("/")
        served = await self._ask(lambda: self._client.get(f"/apis/{group}/{version}", _ServedResources))
        for one in served.resources:
            if one.kind == kind and "/" not in one.name:
                resource = Resource(group, version, one.name, namespaced=one.namespaced)
                return resource.path(method.definition.get("namespace") or self._namespace, name)
        raise NotFound(f"{group}/{version} has no kind {kind}; install the operator that serves it")

    async def _manifest(self, task: RemedyTask, kind: str) -> dict[str, Any]:
        reference = task.method.definition
        path = await self._path(task.method, str(reference["kind"]), str(reference["name"]))
        template = await self._ask(lambda: self._client.get(path, CustomObject))
        inner = template.spec.get("template")
        if not isinstance(inner, dict):
            raise NotFound(f"{path}: it has no spec.template; write one, it may be empty")
        annotations = {
            REMEDY_OPERATION: task.operation.id,
            NODE_NAME: task.node.name,
            TEMPLATE_NAME: str(reference["name"]),
        }
        return {
            "apiVersion": reference["apiVersion"],
            "kind": kind,
            "metadata": {
                "name": task.node.name,
                "namespace": template.metadata.namespace,
                "annotations": annotations,
            },
            "spec": with_node_name(inner.get("spec") or {}, task.node.name),
        }

    async def _make_room(self, task: RemedyTask, path: str) -> None:
        """Delete the object of an earlier operation and wait until it is gone. Raises Conflict for one of another owner."""
        while True:
            try:
                found = await self._ask(lambda: self._client.get(path, CustomObject))
            except NotFound:
                return
            meta = found.metadata
            owner = meta.annotations.get(REMEDY_OPERATION)
            if owner == task.operation.id:
                return
            if owner is None:
                raise Conflict(
                    f"{path} exists already and belongs to another controller; this node is in its care"
                )
            if meta.deletion_timestamp is None:
                with contextlib.suppress(NotFound, Conflict):
                    await self._client.delete(path, uid=meta.uid)
            await self._clock.sleep(self._poll_seconds)

    async def _create(self, path: str, manifest: dict[str, Any]) -> str:
        """Create the object; return why the API server refused it, or ""."""
        collection = path.rpartition("/")[0]
        try:
            await self._ask(lambda: self._client.create(collection, manifest, CustomObject))
        except AlreadyExists:  # of an earlier try without an answer; `_result_of` checks whose it is
            return ""
        except KubeletxError as error:
            return f"the {manifest['kind']} cannot be created: {error}"
        return ""

    async def _result_of(self, task: RemedyTask, path: str) -> RemedyOutcome:
        """Wait for the operator's result. Raises NotFound if the object is missing."""
        while True:
            found = await self._ask(lambda: self._client.get(path, CustomObject))
            if found.metadata.annotations.get(REMEDY_OPERATION) != task.operation.id:
                raise Conflict(f"{path} belongs to another operation or controller")
            conditions = _conditions(found)
            succeeded = conditions.get("Succeeded", {})
            text = ": ".join(filter(None, (path, succeeded.get("reason"), succeeded.get("message"))))
            if conditions.get("PermanentNodeDeletionExpected", {}).get("status") == "True":
                text += "; the operator deletes the node"
            if succeeded.get("status") == "True":
                return done(task, text)
            if succeeded.get("status") == "False":
                return RemedyOutcome(result=MethodResult.FAILED, message=text)
            await self._clock.sleep(self._poll_seconds)

    async def _give_up(self, task: RemedyTask, path: str) -> None:
        annotations = {TIMED_OUT: self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        patch = {"metadata": {"annotations": annotations}}
        with contextlib.suppress(KubeletxError):
            async with within(_STOP_SECONDS, "the object cannot be annotated"):
                found = await self._ask(lambda: self._client.get(path, CustomObject))
                if found.metadata.annotations.get(REMEDY_OPERATION) == task.operation.id:
                    await self._client.patch(path, patch, CustomObject, kind=Patch.MERGE)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered(self._client, self._clock, call)


def _conditions(found: CustomObject) -> dict[str, dict[str, str]]:
    """Return the conditions by type. An operator may write anything: what is not a condition is left out."""
    listed = found.status.get("conditions")
    return {
        str(condition.get("type")): {key: str(value) for key, value in condition.items()}
        for condition in (listed if isinstance(listed, list) else ())
        if isinstance(condition, dict)
    }
