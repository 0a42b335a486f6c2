"""`CriRuntime`: implements `kubeletx.api.Runtime` over any CRI v1 server.

The subclass `ContainerdRuntime` adds containerd's own services. Plugins may subclass it too, such as Quark's for
standby.

`create_sandbox` and `create_unit` are idempotent, although CRI's calls are not. If the server answers that the name is
taken, the existing sandbox or container with the same key is searched and returned. If the server does not list it yet,
an earlier call is still creating it; Unavailable is raised then, and the agent tries again.

If the endpoint's URL names a runtime handler (``?handler=crun``), this runtime creates and lists only sandboxes of that
handler.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from kubeletx.api import (
    Conflict,
    Endpoint,
    Host,
    KubeletxError,
    NotFound,
    RuntimeHealth,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    SupportsAttach,
    SupportsCheckpoint,
    SupportsCriPassthrough,
    SupportsEvents,
    SupportsExec,
    SupportsImages,
    SupportsLogReopen,
    SupportsNetworkConfig,
    SupportsPortForward,
    SupportsResize,
    SupportsStats,
    TimedOut,
    Traits,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStatus,
    UnitSummary,
    Unsupported,
    names,
)

from . import methods
from .backend import Backend, cgroup_parent, health_from_cri, read_backend, traits_of, version_from_cri
from .capabilities import CriCapabilities, knows_checkpoints
from .client import DEADLINE_SECONDS, A, CriClient, Q
from .convert import (
    sandbox_status_from_cri,
    sandbox_summary_from_cri,
    sandbox_to_cri,
    unit_status_from_cri,
    unit_summary_from_cri,
    unit_to_cri,
)
from .errors import hint, is_name_taken, left_task
from .events import CriEvents, knows_events
from .existing import first_sandbox, first_unit
from .ids import KnownIds
from .images import CRI_NAMESPACE, CriImages, FollowPull, find_store_id
from .methods import Method
from .stubs import runtime_v1_pb2 as pb

T = TypeVar("T")


class CriRuntime:
    """Runtime over one CRI endpoint. Implements `kubeletx.api.Runtime`; all tasks of one event loop may use it."""

    def __init__(self, endpoint: Endpoint, settings: Any, host: Host) -> None:
        """Check the endpoint's URLs without connecting. Raises InvalidConfig for an invalid one.

        The URL may name a runtime handler with the parameter ``handler``. `settings`: not used.
        """
        self.endpoint = endpoint
        self.host = host
        self.client = CriClient(endpoint.url)
        self.image_client = self.client if endpoint.image_url is None else CriClient(endpoint.image_url)
        self.handler = self.client.target.parameters.get("handler", "")
        self.known = KnownIds()
        self._backend: Backend | None = None
        self._capabilities: dict[type, object] = {}

    async def open(self) -> None:
        self.client.open()
        self.image_client.open()
        version = await self._call(methods.VERSION, pb.VersionRequest())
        # Verbose: older servers (containerd 1.6) report handlers and cgroup driver only in their configuration.
        status = await self._call(methods.STATUS, pb.StatusRequest(verbose=True))
        config = await self._find(methods.RUNTIME_CONFIG, pb.RuntimeConfigRequest())
        self._backend = read_backend(version_from_cri(version), status, config, self.handler)
        self._capabilities = await self._ask_capabilities()
        # Events of deletions may have been lost while there was no connection.
        self.known.clear()

    async def close(self) -> None:
        await self.client.close()
        await self.image_client.close()

    def traits(self) -> Traits:
        """Return the traits of this runtime: it runs processes, and writes log files in CRI format itself.

        The features that it refuses depend on the server's version. Raises Unavailable before the first `open`.
        """
        return traits_of(self.backend, remote=self.client.target.is_remote)

    def capability(self, protocol: type[T]) -> T | None:
        """Return the object that implements the capability; None if the server did not have it at the last `open`.

        `protocol`: one of the Supports... classes of `kubeletx.api`.
        """
        return cast("T | None", self._capabilities.get(protocol))

    @property
    def backend(self) -> Backend:
        """Properties that the server reported at the last `open`. Raises Unavailable before the first `open`."""
        if self._backend is None:
            raise Unavailable(f"{self.client.endpoint} was not reached yet")
        return self._backend

    def cgroup_driver(self) -> str:
        """Return the server's cgroup driver: ``systemd`` or ``cgroupfs``; empty if the server does not report it.

        Raises Unavailable before the first `open`. Callers do not have to convert cgroup parents: they pass paths,
        which this class converts to systemd slices if necessary.
        """
        return self.backend.cgroup_driver

    async def version(self) -> RuntimeVersion:
        return version_from_cri(await self._call(methods.VERSION, pb.VersionRequest()))

    async def health(self) -> RuntimeHealth:
        answer = await self._call(methods.STATUS, pb.StatusRequest())
        backend = self._backend
        if backend is None:
            return health_from_cri(answer, (), self.handler)
        return health_from_cri(answer, backend.handlers, self.handler, backend.cni_directory)

    # --- sandboxes ---

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        request = pb.RunPodSandboxRequest(
            config=self._sandbox_config(spec), runtime_handler=self._handler_of(spec)
        )
        try:
            answer = await self._call(methods.RUN_POD_SANDBOX, request)
        except KubeletxError as err:
            if not is_name_taken(err):
                raise
            sandbox_id = await first_sandbox(self.client, spec, err)
        else:
            sandbox_id = SandboxId(answer.pod_sandbox_id)
        self.known.add_sandbox(sandbox_id, spec.uid)
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        try:
            await self._call(methods.STOP_POD_SANDBOX, pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))
        except NotFound as error:
            # NotFound may mean a part of it, of which another client deleted the record (see `containerd_tasks`).
            if await self._sandbox_state(sandbox_id) is SandboxState.READY:
                raise _still_there(SandboxState.READY, error) from error

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        """Call RemovePodSandbox, which kills and removes all its containers; succeeds if the sandbox does not exist.

        If the call fails, its containers are removed one by one, and then the sandbox. Raises Conflict, with what is in
        the way, if the server still lists the sandbox.
        """
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        try:
            await self._remove(methods.REMOVE_POD_SANDBOX, request, sandbox_id)
        # The result is unknown, or no call gets through: removing the parts would fail as well.
        except (Unavailable, TimedOut):
            raise
        except KubeletxError as error:
            await self._remove_parts(request, error)
        self.known.remove_sandbox(sandbox_id)

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """Call ListPodSandbox, and return the sandboxes whose labels contain every pair of `match`.

        If the endpoint's URL names a runtime handler, sandboxes of other handlers are left out.
        """
        answer = await self._call(
            methods.LIST_POD_SANDBOX,
            pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(label_selector=match)),
        )
        listed = [
            sandbox_summary_from_cri(item)
            for item in answer.items
            if not self.handler or item.runtime_handler == self.handler
        ]
        self.known.add_sandboxes(listed)
        return listed

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        answer = await self._call(
            methods.POD_SANDBOX_STATUS, pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        )
        return sandbox_status_from_cri(answer)

    # --- units ---

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        """Call CreateContainer, and return the container's id. Raises Unsupported for a unit that is not a process.

        If the container exists already, its id is returned. The pod's UID is always added to the labels, since
        CRI has no other field of a container for it.
        """
        config = unit_to_cri(spec)
        config.labels[names.POD_UID] = sandbox.uid
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=config, sandbox_config=self._sandbox_config(sandbox)
        )
        try:
            answer = await self._call(methods.CREATE_CONTAINER, request)
        except KubeletxError as err:
            if not is_name_taken(err):
                raise
            unit_id = await first_unit(self.client, sandbox_id, spec, err)
        else:
            unit_id = UnitId(answer.container_id)
        self.known.add_unit(unit_id, sandbox_id, sandbox.uid)
        return unit_id

    async def start_unit(self, unit_id: UnitId) -> None:
        try:
            await self._call(methods.START_CONTAINER, pb.StartContainerRequest(container_id=unit_id))
        # containerd refuses to start a running container: an earlier call started it, and its answer was lost.
        except Conflict:
            if (await self.unit_status(unit_id)).summary.state is not UnitState.RUNNING:
                raise

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        # CRI has whole seconds; rounding down would turn half a second into an immediate kill.
        seconds = max(0, math.ceil(grace_seconds))
        request = pb.StopContainerRequest(container_id=unit_id, timeout=seconds)
        await self._end_unit(
            unit_id,
            lambda: self._call(methods.STOP_CONTAINER, request, seconds + DEADLINE_SECONDS),
            until=(UnitState.CREATED, UnitState.EXITED),
        )

    async def remove_unit(self, unit_id: UnitId) -> None:
        request = pb.RemoveContainerRequest(container_id=unit_id)
        await self._end_unit(
            unit_id, lambda: self._remove(methods.REMOVE_CONTAINER, request, unit_id), until=()
        )
        self.known.remove_unit(unit_id)

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        """Call ListContainers, and return the containers whose labels contain every pair of `match`.

        If the endpoint's URL names a runtime handler, containers in sandboxes of other handlers are left out.
        """
        answer = await self._call(
            methods.LIST_CONTAINERS,
            pb.ListContainersRequest(filter=pb.ContainerFilter(label_selector=match)),
        )
        listed = [unit_summary_from_cri(item) for item in answer.containers]
        if self._needs_filtering(match):
            own = await self._own_sandboxes()
            listed = [item for item in listed if item.sandbox_id in own]
        self.known.add_units(listed)
        return listed

    async def unit_status(self, unit_id: UnitId) -> UnitStatus:
        answer = await self._call(methods.CONTAINER_STATUS, pb.ContainerStatusRequest(container_id=unit_id))
        return unit_status_from_cri(answer, await self._sandbox_of(unit_id))

    # --- methods that subclasses may override ---

    async def find_events(self) -> SupportsEvents | None:
        """Return an object that reads CRI's event stream; None if the server does not have the call.

        Called at each `open`. Subclasses override it to use another event stream.
        """
        return (
            CriEvents(self.client, sleep=self.host.clock.sleep) if await knows_events(self.client) else None
        )

    async def find_pull_progress(self) -> FollowPull | None:
        """Return a function that reports the progress of pulls; None if the server does not report it.

        This class always returns None, since CRI has no such call. Called at each `open`.
        """
        return None

    async def end_task(self, task_id: str) -> bool:
        """End a containerd task that an interrupted start of a container has left. Returns True on success.

        This class always returns False, since CRI has no such call; an operator then has to end the task.
        """
        return False

    async def restore_record(self, unit_id: UnitId) -> bool:
        """Repair a container of which the server has lost a part. Returns True if a call that failed may succeed now.

        Called after StopContainer or RemoveContainer answered NotFound for a container that the server lists. This
        class always returns False, since CRI has no such call.
        """
        return False

    async def _ask_capabilities(self) -> dict[type, object]:
        calls = CriCapabilities(self.client, self.image_client, self._own_units)
        capabilities: dict[type, object] = {
            SupportsExec: calls,
            SupportsAttach: calls,
            SupportsPortForward: calls,
            SupportsStats: calls,
            SupportsLogReopen: calls,
            SupportsResize: calls,
            SupportsNetworkConfig: calls,
            SupportsCriPassthrough: calls,
            SupportsImages: CriImages(
                self.image_client,
                await find_store_id(self.image_client),
                sandbox_image=self.backend.sandbox_image,
                follow=await self.find_pull_progress(),
            ),
        }
        events = await self.find_events()
        if events is not None:
            capabilities[SupportsEvents] = events
        if await knows_checkpoints(self.client):
            capabilities[SupportsCheckpoint] = calls
        return capabilities

    def _sandbox_config(self, spec: SandboxSpec) -> pb.PodSandboxConfig:
        config = sandbox_to_cri(spec)
        driver = self._backend.cgroup_driver if self._backend else ""
        config.linux.cgroup_parent = cgroup_parent(spec.cgroup_parent, driver)
        return config

    def _handler_of(self, spec: SandboxSpec) -> str:
        if self.handler and spec.handler not in ("", self.handler):
            raise Unsupported(
                f"runtime {self.endpoint.name} serves handler {self.handler!r} only, not {spec.handler!r}"
            )
        return spec.handler or self.handler

    async def _sandbox_of(self, unit_id: UnitId) -> SandboxId:
        owner = self.known.find(unit_id)
        if owner is not None:
            return owner.sandbox_id
        answer = await self._call(
            methods.LIST_CONTAINERS, pb.ListContainersRequest(filter=pb.ContainerFilter(id=unit_id))
        )
        for item in answer.containers:
            if item.id == unit_id:
                summary = unit_summary_from_cri(item)
                self.known.add_unit(summary.id, summary.sandbox_id, summary.uid)
                return summary.sandbox_id
        raise NotFound(f"container {unit_id} is gone")

    def _needs_filtering(self, match: Mapping[str, str]) -> bool:
        """Return True if a list by the label selector `match` may contain units of other CRI runtime handlers.

        The caller must filter these out. False if the endpoint's URL names no handler: the runtime then owns the units
        of all handlers. Also False if `match` selects by this runtime's name, a label that only its own units have.
        """
        return bool(self.handler) and match.get(names.RUNTIME_NAME) != self.endpoint.name

    async def _own_sandboxes(self) -> set[SandboxId]:
        return {item.id for item in await self.list_sandboxes({})}

    async def _own_units(self, match: Mapping[str, str]) -> Callable[[str], bool]:
        if not self._needs_filtering(match):
            return lambda _unit_id: True
        own = {item.id for item in await self.list_units(match)}
        return lambda unit_id: unit_id in own

    async def _call(self, method: Method[Q, A], request: Q, timeout_seconds: float = DEADLINE_SECONDS) -> A:
        return await self.client.call(method, request, timeout_seconds=timeout_seconds)

    async def _find(self, method: Method[Q, A], request: Q) -> A | None:
        try:
            return await self._call(method, request)
        except Unsupported:
            return None

    async def _end_unit(
        self, unit_id: UnitId, call: Callable[[], Awaitable[object]], *, until: Collection[UnitState]
    ) -> None:
        """Make a call that stops or removes a container.

        Its NotFound may be about a part of the container, so it counts only if the server does not list the container,
        or lists it in a state of `until`.
        """
        while True:
            try:
                await call()
            except NotFound as error:
                state = await self._unit_state(unit_id)
                if state is None or state in until:
                    return
                if not await self.restore_record(unit_id):
                    raise _still_there(state, error) from error
            else:
                return

    async def _remove(self, method: Method[Q, A], request: Q, target: str) -> None:
        """Call RemoveContainer or RemovePodSandbox (`method`) for the object with id `target`.

        If a containerd task that an interrupted start has left prevents the removal, end it and call again.
        Raises Conflict, with what an operator can do, if the task cannot be ended.
        """
        ended: set[str] = set()
        while True:
            try:
                await self._call(method, request)
            except KubeletxError as error:
                task = left_task(error)
                # A task that was ended before and is named again cannot be ended: a third call would not help.
                if task is None or task in ended:
                    raise
                if not self._belongs(task, target) or not await self.end_task(task):
                    raise Conflict(f"{error.message}; {hint(task, CRI_NAMESPACE)}") from error
                ended.add(task)
            else:
                return

    async def _remove_parts(self, request: pb.RemovePodSandboxRequest, error: KubeletxError) -> None:
        """Remove the containers of a sandbox one by one, then the sandbox. `error`: the error of RemovePodSandbox.

        It may be a NotFound for one of the containers, which does not mean that the sandbox is gone.
        """
        sandbox_id = SandboxId(request.pod_sandbox_id)
        if isinstance(error, NotFound) and await self._sandbox_state(sandbox_id) is None:
            return
        filter_ = pb.ContainerFilter(pod_sandbox_id=sandbox_id)
        listed = await self._call(methods.LIST_CONTAINERS, pb.ListContainersRequest(filter=filter_))
        for item in listed.containers:
            await self.remove_unit(UnitId(item.id))
        try:
            # Without containers nothing else can be removed first, so the first error is the reason.
            if not listed.containers:
                raise error
            await self._remove(methods.REMOVE_POD_SANDBOX, request, sandbox_id)
        except NotFound as second:
            state = await self._sandbox_state(sandbox_id)
            if state is not None:
                raise _still_there(state, second) from second

    async def _sandbox_state(self, sandbox_id: SandboxId) -> SandboxState | None:
        """Return the state of a sandbox as listed; None if it is not listed."""
        request = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(id=sandbox_id))
        answer = await self._call(methods.LIST_POD_SANDBOX, request)
        return next(
            (sandbox_summary_from_cri(item).state for item in answer.items if item.id == sandbox_id), None
        )

    async def _unit_state(self, unit_id: UnitId) -> UnitState | None:
        """Return the state of a container as listed; None if it is not listed."""
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(id=unit_id))
        answer = await self._call(methods.LIST_CONTAINERS, request)
        return next(
            (
                unit_summary_from_cri(container).state
                for container in answer.containers
                if container.id == unit_id
            ),
            None,
        )

    def _belongs(self, task: str, target: str) -> bool:
        owner = self.known.find(task)
        return task == target or (owner is not None and owner.sandbox_id == target)


def _still_there(state: UnitState | SandboxState, error: NotFound) -> Conflict:
    """Return the error for an object that the server lists in `state`, but reports as not found when it is to end."""
    return Conflict(
        f"{error.message}; the runtime lists it as {state.value}; restart the runtime if it stays listed"
    )
