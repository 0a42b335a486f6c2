"""Probes (P1 to P7) against containers that are made to answer well and badly."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeletx.kube.types.core import Pod
from tests.integration.support.bench import (
    Bench,
    condition,
    container_id,
    is_running,
    on_term,
    one_container,
    restarts,
    status,
    terminated,
    with_containers,
)


def cgi(name: str, body: str) -> str:
    """Shell that puts a CGI program into the web server's directory."""
    return f"printf '%s' '#!/bin/sh\n{body}\n' > /www/cgi-bin/{name}; chmod +x /www/cgi-bin/{name}"


def web(*programs: str) -> str:
    """A script that serves CGI programs on port 8080 and logs the requests' user agents."""
    made = "; ".join(programs)
    return f"mkdir -p /www/cgi-bin; {made}; exec httpd -f -p 8080 -h /www"


def answers(code: int, *headers: str) -> str:
    lines = "\\r\\n".join((f"Status: {code} x", "Content-Type: text/plain", *headers, "", "body"))
    return f'echo "$HTTP_USER_AGENT $HTTP_X_MARK" >> /tmp/agents; printf "{lines}"'


def http(path: str, **more: Any) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": 8080, **more}, "periodSeconds": 1, "timeoutSeconds": 15}


def command(*words: str, **more: Any) -> dict[str, Any]:
    """An exec probe every second, with time to answer on a busy machine."""
    return {"exec": {"command": list(words)}, "periodSeconds": 1, "timeoutSeconds": 15, **more}


def ready_status(pod: Pod, name: str = "main") -> bool:
    return status(pod, name).ready


def test_http_probes_take_200_to_399_and_say_who_asks(bench: Bench) -> None:
    headers = [{"name": "X-Mark", "value": "here"}]
    script = web(cgi("good", answers(200)), cgi("moved", answers(302, "Location: http://192.0.2.1/")))
    bench.put(
        "http-good",
        script,
        container={"readinessProbe": http("/cgi-bin/good", httpHeaders=headers)},
    )
    bench.ready("http-good")
    agents = bench.exec("http-good", "cat /tmp/agents").splitlines()
    assert agents[-1].startswith("kube-probe/")
    assert agents[-1].endswith(" here")
    bench.put("http-moved", script, container={"readinessProbe": http("/cgi-bin/moved")})
    bench.ready("http-moved")
    assert bench.event("http-moved", "ProbeWarning")["type"] == "Warning"


def test_an_http_error_makes_a_pod_unready_and_an_event_says_why(bench: Bench) -> None:
    probe = http("/cgi-bin/bad")
    bench.put("http-bad", web(cgi("bad", answers(503))), container={"readinessProbe": probe})
    bench.event("http-bad", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
    pod = bench.until("http-bad", is_running)
    assert not ready_status(pod)
    assert condition(pod, "Ready").reason == "ContainersNotReady"
    assert restarts(pod) == 0


def test_redirects_on_the_same_host_are_followed(bench: Bench) -> None:
    script = web(cgi("a", answers(302, "Location: /cgi-bin/b")), cgi("b", answers(500)))
    bench.put("http-redirect", script, container={"readinessProbe": http("/cgi-bin/a")})
    bench.event("http-redirect", "Unhealthy", "statuscode: 500")


def _self_signed(directory: Path) -> ssl.SSLContext:
    """A server context with a certificate that no one trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nobody")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = directory / "both.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


@pytest.fixture
def https(tmp_path: Path) -> Iterator[int]:
    """Port of an HTTPS server of this machine whose certificate no one knows."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = _self_signed(tmp_path)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="https")
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_https_probes_take_any_certificate(bench: Bench, https: int) -> None:
    get = {"scheme": "HTTPS", "host": "127.0.0.1", "port": https, "path": "/"}
    bench.put("https", container={"readinessProbe": {"httpGet": get, "periodSeconds": 1}})
    bench.ready("https")
    bench.remove("https")


def test_tcp_probes_ask_the_pods_address(bench: Bench) -> None:
    probe = {"tcpSocket": {"port": "web"}, "periodSeconds": 1}
    container = {"ports": [{"name": "web", "containerPort": 8080}], "readinessProbe": probe}
    bench.put(
        "tcp", "until [ -e /tmp/go ]; do sleep 0.05; done; exec httpd -f -p 8080 -h /", container=container
    )
    assert "Readiness probe failed" in bench.event("tcp", "Unhealthy")["message"]
    pod = bench.until("tcp", is_running)
    assert not ready_status(pod)
    bench.exec("tcp", "touch /tmp/go")
    bench.ready("tcp")


class Health:
    """A gRPC health service that knows one service by name."""

    def __init__(self) -> None:
        self.serving = False

    def check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """A HealthCheckResponse with status SERVING (1) or NOT_SERVING (2)."""
        if request != b"\x0a\x05ready":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return b"\x08\x01" if self.serving else b"\x08\x02"


@pytest.fixture
def health() -> Iterator[tuple[Health, int]]:
    """A health service on a port of this machine, where a pod with hostNetwork is asked."""
    service = Health()
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(service.check)
    handlers = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("0.0.0.0:0")
    server.start()
    yield service, port
    server.stop(None).wait()


def test_grpc_probes_ask_the_health_service_by_name(bench: Bench, health: tuple[Health, int]) -> None:
    service, port = health
    probe = {"grpc": {"port": port, "service": "ready"}, "periodSeconds": 1}
    bench.put("grpc", container={"readinessProbe": probe}, spec={"hostNetwork": True})
    bench.event("grpc", "Unhealthy", "NOT_SERVING")
    assert not ready_status(bench.pod("grpc"))
    service.serving = True
    bench.ready("grpc")
    bench.remove("grpc")


def test_exec_probes_run_in_the_container_and_time_out(bench: Bench) -> None:
    probe = {"exec": {"command": ["sh", "-c", "test -e /tmp/ok || sleep 5"]}, "periodSeconds": 1}
    bench.put("exec", container={"readinessProbe": probe})
    reported = bench.event("exec", "Unhealthy")
    assert "timed out" in reported["message"].lower() or "deadline" in reported["message"].lower()
    assert not ready_status(bench.pod("exec"))
    bench.exec("exec", "touch /tmp/ok")
    bench.ready("exec")
    bench.exec("exec", "rm /tmp/ok")
    pod = bench.until("exec", lambda pod: not ready_status(pod))
    assert restarts(pod) == 0


def test_a_failing_liveness_probe_restarts_the_container(bench: Bench) -> None:
    probe = command("test", "!", "-e", "/tmp/sick", failureThreshold=2)
    bench.put("liveness", container={"livenessProbe": probe})
    before = bench.ready("liveness")
    bench.exec("liveness", "touch /tmp/sick")
    after = bench.until("liveness", lambda pod: restarts(pod) == 1 and is_running(pod))
    assert container_id(after) != container_id(before)
    assert "Liveness probe failed" in bench.event("liveness", "Unhealthy")["message"]
    killing = bench.event("liveness", "Killing")["message"]
    assert killing == "Container main failed liveness probe, will be restarted"


def test_a_liveness_probe_restarts_nothing_with_policy_never(bench: Bench) -> None:
    probe = command("false", failureThreshold=1)
    bench.put("doomed", container={"livenessProbe": probe}, spec={"restartPolicy": "Never"})
    pod = bench.ended("doomed")
    assert (pod.status.phase, restarts(pod)) == ("Failed", 0) or terminated(pod).exit_code == 0


def test_a_startup_probe_holds_the_others_back(bench: Bench) -> None:
    bench.put(
        "startup",
        container={
            "startupProbe": command("test", "-e", "/tmp/up", failureThreshold=60),
            "livenessProbe": command("sh", "-c", "touch /tmp/asked", failureThreshold=1),
            "readinessProbe": command("true"),
        },
    )
    bench.event("startup", "Unhealthy")
    pod = bench.pod("startup")
    assert (status(pod).started, status(pod).ready, restarts(pod)) == (False, False, 0)
    assert bench.exec("startup", "ls /tmp") == ""
    bench.exec("startup", "touch /tmp/up")
    pod = bench.ready("startup")
    assert status(pod).started


def test_a_failing_startup_probe_restarts_the_container(bench: Bench) -> None:
    probe = command("false", failureThreshold=2)
    bench.put("no-start", container={"startupProbe": probe})
    bench.until("no-start", lambda pod: restarts(pod) >= 1)
    reported = bench.event("no-start", "Killing")["message"]
    assert reported == "Container main failed startup probe, will be restarted"


def test_no_probe_runs_before_its_initial_delay(bench: Bench) -> None:
    bench.put("delayed", container={"readinessProbe": command("true", initialDelaySeconds=3)})
    pod = bench.ready("delayed")
    started = status(pod).state.running
    ready_at = condition(pod, "Ready").last_transition_time
    assert started is not None
    assert started.started_at is not None
    assert ready_at is not None
    assert (ready_at - started.started_at).total_seconds() >= 2  # both are told in whole seconds


def test_thresholds_count(bench: Bench) -> None:
    script = "test -e /tmp/ok && echo x >> /tmp/n"
    probe = command("sh", "-c", script, successThreshold=2, failureThreshold=1)
    bench.put("thresholds", container={"readinessProbe": probe})
    bench.until("thresholds", is_running)
    bench.exec("thresholds", "touch /tmp/ok")
    bench.ready("thresholds")
    assert int(bench.exec("thresholds", "wc -l < /tmp/n")) >= 2


def test_a_probes_own_grace_wins_over_the_pods(bench: Bench) -> None:
    probe = command("test", "!", "-e", "/tmp/sick", failureThreshold=1, terminationGracePeriodSeconds=1)
    bench.put(
        "probe-grace",
        "trap '' TERM; while :; do sleep 0.1; done",
        container={"livenessProbe": probe},
        spec={"terminationGracePeriodSeconds": 600},
    )
    bench.ready("probe-grace")
    bench.exec("probe-grace", "touch /tmp/sick")
    bench.until("probe-grace", lambda pod: restarts(pod) == 1)
    assert terminated(bench.pod("probe-grace")).exit_code == 137


def test_readiness_goes_on_while_a_pod_stops(bench: Bench) -> None:
    probe = command("test", "!", "-e", "/v/stopping", failureThreshold=1)
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = on_term("touch /v/stopping; while [ ! -e /v/go ]; do sleep 0.05; done; exit 0")
    spec = {"terminationGracePeriodSeconds": 60, "volumes": [{"name": "v", "emptyDir": {}}]}
    path = bench.put("going", script, container={"readinessProbe": probe, **mount}, spec=spec)
    bench.listening("going")
    path.unlink()
    pod = bench.until("going", lambda pod: not ready_status(pod) and is_running(pod))
    assert pod.metadata.deletion_timestamp is not None
    bench.exec("going", "touch /v/go")
    bench.agent.wait_gone("going")


def test_defaults_of_probes_are_the_apis(bench: Bench) -> None:
    bench.put(
        "defaults", spec=with_containers(one_container("main", livenessProbe={"exec": {"command": ["true"]}}))
    )
    probe = bench.ready("defaults").spec.containers[0].liveness_probe
    assert probe is not None
    assert (
        probe.timeout_seconds,
        probe.period_seconds,
        probe.success_threshold,
        probe.failure_threshold,
    ) == (1, 10, 1, 3)


def test_after_a_restart_of_the_agent_readiness_is_kept_until_the_next_answer(bench: Bench) -> None:
    slow = command("true", periodSeconds=60)
    bench.put("kept", container={"readinessProbe": slow, "startupProbe": command("true")})
    before = bench.ready("kept")
    bench.agent.restart()
    pod = bench.pod("kept")
    assert ready_status(pod)
    assert status(pod).started
    assert container_id(pod) == container_id(before)
