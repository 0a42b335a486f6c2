"""Rules for probes and lifecycle hooks. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from typing import Final

from ..types.handlers import (
    ExecAction,
    HTTPGetAction,
    IntOrString,
    Lifecycle,
    LifecycleHandler,
    Probe,
)
from . import words
from .problems import INT64_MAX, Problems, show

_PROBES: Final = {"exec": "exec", "http_get": "httpGet", "tcp_socket": "tcpSocket", "grpc": "grpc"}
_HOOKS: Final = {"exec": "exec", "http_get": "httpGet", "tcp_socket": "tcpSocket", "sleep": "sleep"}


def check_probe(field: str, kind: str, probe: Probe, problems: Problems) -> None:
    """Check a probe whose defaults are set. `kind`: livenessProbe, readinessProbe or startupProbe."""
    given = [word for attribute, word in _PROBES.items() if getattr(probe, attribute) is not None]
    problems.exactly_one(field, given, _PROBES.values(), "handler")
    problems.between(f"{field}.initialDelaySeconds", probe.initial_delay_seconds, 0)
    problems.between(f"{field}.timeoutSeconds", probe.timeout_seconds, 1)
    problems.between(f"{field}.periodSeconds", probe.period_seconds, 1)
    problems.between(f"{field}.failureThreshold", probe.failure_threshold, 1)
    problems.between(f"{field}.successThreshold", probe.success_threshold, 1)
    if kind != "readinessProbe" and (probe.success_threshold or 1) > 1:
        problems.add(
            f"{field}.successThreshold", f"{probe.success_threshold} is not allowed for a {kind}", "use 1"
        )
    grace = probe.termination_grace_period_seconds
    if kind == "readinessProbe" and grace is not None:
        problems.add(
            f"{field}.terminationGracePeriodSeconds", f"{grace} is set on a readinessProbe", "remove it"
        )
    problems.between(f"{field}.terminationGracePeriodSeconds", grace, 1, INT64_MAX)
    _check_actions(field, probe.exec, probe.http_get, problems)
    if probe.tcp_socket is not None:
        _check_port(f"{field}.tcpSocket.port", probe.tcp_socket.port, problems)
    if probe.grpc is not None:
        problems.between(f"{field}.grpc.port", probe.grpc.port, 1, 65535)


def check_lifecycle(
    field: str, lifecycle: Lifecycle, grace_seconds: int, system: str | None, problems: Problems
) -> None:
    """Check a container's lifecycle hooks and stop signal.

    `grace_seconds`: the pod's grace period, the maximum of a sleep action. `system`: spec.os.name.
    """
    if lifecycle.post_start is not None:
        _check_hook(f"{field}.postStart", lifecycle.post_start, grace_seconds, problems)
    if lifecycle.pre_stop is not None:
        _check_hook(f"{field}.preStop", lifecycle.pre_stop, grace_seconds, problems)
    if lifecycle.stop_signal is None:
        return
    if system is None:
        problem = f"{show(lifecycle.stop_signal)} without spec.os.name"
        problems.add(f"{field}.stopSignal", problem, "set spec.os.name to linux")
    elif system == "windows":
        problems.one_of(f"{field}.stopSignal", lifecycle.stop_signal, ("SIGKILL", "SIGTERM"))
    else:
        problems.name(f"{field}.stopSignal", lifecycle.stop_signal, words.signal_name)


def _check_hook(field: str, hook: LifecycleHandler, grace_seconds: int, problems: Problems) -> None:
    given = [word for attribute, word in _HOOKS.items() if getattr(hook, attribute) is not None]
    problems.exactly_one(field, given, ("exec", "httpGet", "sleep"), "handler")
    _check_actions(field, hook.exec, hook.http_get, problems)
    if hook.tcp_socket is not None:
        _check_port(f"{field}.tcpSocket.port", hook.tcp_socket.port, problems)
    if hook.sleep is not None:
        problems.between(f"{field}.sleep.seconds", hook.sleep.seconds, 0, max(grace_seconds, 0))


def _check_actions(
    field: str, command: ExecAction | None, http: HTTPGetAction | None, problems: Problems
) -> None:
    if command is not None and not command.command:
        problems.add(f"{field}.exec.command", "is missing", "name a command")
    if http is None:
        return
    _check_port(f"{field}.httpGet.port", http.port, problems)
    problems.one_of(f"{field}.httpGet.scheme", http.scheme, ("HTTP", "HTTPS"))
    for index, header in enumerate(http.http_headers):
        problems.name(f"{field}.httpGet.httpHeaders[{index}].name", header.name, words.header_name)
        if "\r" in header.value or "\n" in header.value:
            problems.add(
                f"{field}.httpGet.httpHeaders[{index}].value",
                f"{show(header.value)} holds a line break",
                "remove it",
            )


def _check_port(field: str, port: IntOrString, problems: Problems) -> None:
    if isinstance(port, int):
        problems.between(field, port, 1, 65535)
    else:
        problems.name(field, port, words.port_name)
