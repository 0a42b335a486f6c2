"""`RuntimeMaker`: makes the runtime of an endpoint with its plugin, or says in words why the plugin could not make it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import msgspec
import structlog

from kubeletx.api import (
    Endpoint,
    InvalidConfig,
    KubeletxError,
    ObjectRef,
    Runtime,
    RuntimeName,
    Unavailable,
    names,
)

from .broken import REASON, BrokenRuntime
from .endpoints import urls
from .endpoints.failed_plugins import describe_failed
from .endpoints.isolation_rule import isolation_of
from .endpoints.kinds import UNRESOLVED, KindTable, RuntimeKind
from .endpoints.programs import PROGRAMS
from .handles.abandoned import plugin_function
from .host.host import HostParts, RuntimeHost
from .plugins.call_markers import CallMarkers
from .plugins.failures import failure_text, package_of
from .plugins.required_methods import check_runtime
from .stall_notes import StallNote

if TYPE_CHECKING:  # loaded only when a runtime is isolated, to save memory
    from .isolation import IsolatedRuntime

log = structlog.get_logger(__name__)


class MadeRuntime(msgspec.Struct, frozen=True):
    """A runtime that was made, with its endpoint and its side of the agent.

    `endpoint`: as given, with the kind that serves it. `why`: why `runtime` is a `BrokenRuntime`; empty if it is none.
    """

    endpoint: Endpoint
    runtime: Runtime
    host: RuntimeHost
    why: str = ""
    isolated: IsolatedRuntime | None = None
    """The runtime, if its plugin runs in a process of its own."""


class RuntimeMaker:
    """Makes runtimes with the constructors of plugins. `settings`: decoded settings by plugin kind; may change later."""

    def __init__(
        self,
        kinds: KindTable,
        settings: Mapping[str, Any],
        isolation: Mapping[str, str],
        parts: HostParts,
        *,
        bound_kinds: Callable[[RuntimeName], Collection[str]],
        stalled: Mapping[RuntimeName, StallNote] = MappingProxyType({}),
        variables: Collection[str] = (),
    ) -> None:
        """`isolation`, `variables`: see `FleetConfig`. `bound_kinds`: returns the kinds that made the pods of a runtime.

        `stalled`: notes about runtimes whose plugins blocked an earlier agent process. Such a runtime is isolated, whatever
        its configuration is.
        """
        self._bound_kinds = bound_kinds
        self._stalled = stalled
        self._kinds = kinds
        self._settings = settings
        self._isolation = isolation
        self._variables = variables
        self._parts = parts
        self._markers = CallMarkers(parts.root)

    def make(self, endpoint: Endpoint) -> MadeRuntime:
        """Make the runtime of an endpoint.

        Raises InvalidConfig if no plugin serves the endpoint, and Unavailable, which names the plugin, the constructor's
        error with its place, and what to do, if the plugin could not make the runtime or its pods are of a kind that is
        not loaded.
        """
        endpoint = self._resolved(endpoint)
        self._check_pods(endpoint.name)
        kind = self._kinds.get(endpoint.kind)
        host = RuntimeHost(endpoint.name, self._parts)
        try:
            runtime, isolated = self._call(kind, endpoint, host)
        except BaseException as error:
            # Without an await in the call, no CancelledError or KeyboardInterrupt of the agent can arrive here.
            host.close()
            if not isinstance(error, KubeletxError):
                log.debug("Traceback of the plugin's exception", runtime=endpoint.name, exc_info=error)
            raise Unavailable(_why(kind, endpoint, error), reason=REASON) from error
        return MadeRuntime(endpoint, runtime, host, isolated=isolated)

    def make_or_break(self, endpoint: Endpoint) -> MadeRuntime:
        """Make the runtime of an endpoint; if that is not possible, return a broken one with the reason."""
        try:
            return self.make(endpoint)
        except KubeletxError as error:
            log.error("Failed to make runtime", runtime=endpoint.name, origin=endpoint.origin, err=str(error))
            host = RuntimeHost(endpoint.name, self._parts)
            if endpoint.kind in self._kinds and self._lost_kinds(endpoint.name):
                # the kind is only the default while the kind of the pods is not loaded
                endpoint = msgspec.structs.replace(endpoint, kind=UNRESOLVED)
            return MadeRuntime(endpoint, BrokenRuntime(str(error)), host, why=str(error))

    def _lost_kinds(self, name: RuntimeName) -> list[str]:
        """Return the kinds that made pods of the runtime and are not loaded, sorted."""
        return sorted(
            kind
            for kind in self._bound_kinds(name)
            if kind not in self._kinds and kind not in ("", UNRESOLVED)
        )

    def _check_pods(self, name: RuntimeName) -> None:
        """Raise Unavailable if a kind that made pods of the runtime is not loaded: another kind may not manage them."""
        for kind in self._lost_kinds(name):
            failed = [plugin for plugin in self._kinds.failed if plugin.may_register(kind)]
            raise Unavailable(
                f"runtime {name}: its pods were made by kind {kind!r}, which is not loaded; "
                f"{describe_failed(failed) or 'install its plugin'}; then run `kubeletx runtime reload`",
                reason=REASON,
            )

    def _resolved(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with a registered kind; see `UNRESOLVED`. Raises InvalidConfig if there is none."""
        if endpoint.kind in self._kinds:
            return endpoint
        kind = self._kinds.resolve(
            name=endpoint.name,
            workload_type=endpoint.workload_type,
            url=endpoint.url,
            wanted="" if endpoint.kind == UNRESOLVED else endpoint.kind,
            field=f"runtime {endpoint.name}",
        )
        parameters = urls.split(endpoint.url, f"runtime {endpoint.name}").names
        self._kinds.check_parameters(kind, parameters, f"runtime {endpoint.name}")
        return msgspec.structs.replace(endpoint, kind=kind.name)

    def _call(
        self, kind: RuntimeKind, endpoint: Endpoint, host: RuntimeHost
    ) -> tuple[Runtime, IsolatedRuntime | None]:
        """Return the runtime, and the same object if its plugin runs in a process of its own, else None."""
        settings = self._settings.get(kind.name)
        isolation = isolation_of(endpoint.isolation, kind, self._isolation)
        stall = self._stalled.get(endpoint.name) if kind.name != PROGRAMS.name else None
        if isolation == "none" and stall is not None:
            self._log_stalled(endpoint, stall)
            isolation = "process"
        if isolation == "none":
            with self._markers.around("make", endpoint.name, kind.origin):
                runtime = plugin_function(
                    endpoint.name, "constructor", lambda: kind.factory(endpoint, settings, host)
                )
            check_runtime(runtime, kind.origin, kind.name)
            if kind.name != PROGRAMS.name:
                return runtime, None
            isolated = cast("IsolatedRuntime", runtime)
        else:
            from .isolation import IsolatedRuntime

            isolated = IsolatedRuntime(kind.factory, endpoint, settings, host)
        isolated.variables = self._variables
        return isolated, isolated

    def _log_stalled(self, endpoint: Endpoint, stall: StallNote) -> None:
        log.warning(
            "Isolated runtime whose plugin blocked the agent",
            runtime=endpoint.name,
            method=stall.method,
            elapsed_seconds=round(stall.seconds, 1),
            dump=stall.dump,
        )
        ref = ObjectRef(kind="Runtime", name=endpoint.name)
        text = f"The plugin runs in a process of its own, since {stall}; 'kubeletx runtime reload' ends this"
        self._parts.events.record(ref, type="Warning", reason=names.Event.RUNTIME_ISOLATED, message=text)


def _why(kind: RuntimeKind, endpoint: Endpoint, error: BaseException) -> str:
    """Return the message about a constructor that failed."""
    module = getattr(kind.factory, "__module__", None) or ""
    text = f"runtime {endpoint.name}: {kind.origin}, kind {kind.name}: the constructor failed: "
    text += failure_text(error, package_of(module))
    if isinstance(error, InvalidConfig) and error.fix:
        return f"{text}; then run `kubeletx runtime reload`"
    return f"{text}; repair the plugin or the endpoint, then run `kubeletx runtime reload`"
