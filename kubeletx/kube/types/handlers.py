"""Actions that probes and lifecycle hooks perform. Source: core/v1 Probe and Lifecycle."""

from __future__ import annotations

from typing import TypeAlias

from .meta import ApiStruct

IntOrString: TypeAlias = int | str
"""A port number, or the name of a port of the same container."""


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    """A command run inside the container, without a shell. `command`: the program and its arguments."""

    command: tuple[str, ...] = ()


class HTTPHeader(ApiStruct, frozen=True, kw_only=True):
    """One request header. `name`: name of the header. `value`: its value."""

    name: str = ""
    value: str = ""


class HTTPGetAction(ApiStruct, frozen=True, kw_only=True):
    """HTTP GET request.

    `host` None: the pod's address; `scheme`: HTTP or HTTPS. `path`: path of the URL; None: /. `port`: number or name
    of a port of the container. `http_headers`: headers of the request.
    """

    path: str | None = None
    port: IntOrString = 0
    host: str | None = None
    scheme: str | None = None
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(ApiStruct, frozen=True, kw_only=True):
    """TCP check, which succeeds if a connection to the port can be opened.

    `host` None: the pod's address. `port`: number or name of a port of the container.
    """

    port: IntOrString = 0
    host: str | None = None


class GRPCAction(ApiStruct, frozen=True, kw_only=True):
    """A gRPC health check.

    `port`: number of the port. `service`: name of the service; None: the server as a whole.
    """

    port: int = 0
    service: str | None = None


class SleepAction(ApiStruct, frozen=True, kw_only=True):
    """Action of a lifecycle hook that only waits. `seconds`: how long."""

    seconds: int = 0


class ProbeHandler(ApiStruct, frozen=True, kw_only=True):
    """Action of a probe; exactly one field is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None


class Probe(ProbeHandler, frozen=True, kw_only=True):
    """Periodic check of a container.

    `initial_delay_seconds`: time from the container's start to the first check; default 0. `timeout_seconds`: time
    after which a check without an answer fails; default 1. `period_seconds`: time between two checks; default 10.
    `success_threshold`: successes in a row after which it counts as passed; default 1. `failure_threshold`: failures
    in a row after which it counts as failed; default 3. `termination_grace_period_seconds`: grace period of a
    container that this probe restarts; None: that of the pod.
    """

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
    """Lifecycle hooks of a container.

    `stop_signal`: signal that stops it; None: the default of its image. `post_start`: runs right after the
    container's start; if it fails, the container is restarted. `pre_stop`: runs before the container is stopped,
    within the grace period.
    """

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None
