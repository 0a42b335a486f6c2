"""Actions that probes and lifecycle hooks perform. Source: core/v1 Probe and Lifecycle."""

from __future__ import annotations

from typing import TypeAlias

from .meta import ApiStruct

IntOrString: TypeAlias = int | str
"""A port number, or the name of a port of the same container."""


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    """A command run inside the container, without a shell."""

    command: tuple[str, ...] = ()


class HTTPHeader(ApiStruct, frozen=True, kw_only=True):
    """One request header."""

    name: str = ""
    value: str = ""


class HTTPGetAction(ApiStruct, frozen=True, kw_only=True):
    """HTTP GET request. `host` None: the pod's address; `scheme`: HTTP or HTTPS."""

    path: str | None = None
    port: IntOrString = 0
    host: str | None = None
    scheme: str | None = None
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(ApiStruct, frozen=True, kw_only=True):
    """TCP check, which succeeds if a connection to the port can be opened. `host` None: the pod's address."""

    port: IntOrString = 0
    host: str | None = None


class GRPCAction(ApiStruct, frozen=True, kw_only=True):
    """A gRPC health check of `service`; None: of the server as a whole."""

    port: int = 0
    service: str | None = None


class SleepAction(ApiStruct, frozen=True, kw_only=True):
    """Action of a lifecycle hook that only waits for `seconds`."""

    seconds: int = 0


class ProbeHandler(ApiStruct, frozen=True, kw_only=True):
    """Action of a probe; exactly one field is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None


class Probe(ProbeHandler, frozen=True, kw_only=True):
    """Periodic check of a container. A field that is None gets its default in `kubeletx.kube.manifests.defaults`."""

    initial_delay_seconds: int | None = None
    timeout_seconds: int | None = None
    period_seconds: int | None = None
    success_threshold: int | None = None
    failure_threshold: int | None = None
    termination_grace_period_seconds: int | None = None


class LifecycleHandler(ApiStruct, frozen=True, kw_only=True):
    """Action of a lifecycle hook; exactly one field is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(ApiStruct, frozen=True, kw_only=True):
    """Lifecycle hooks of a container. `stop_signal`: signal that stops it; None: the default of its image."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None
