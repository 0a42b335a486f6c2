"""Attack: requests without credentials, and bytes that are no requests, on the kubelet's API port.

No request may be answered with success, and clients that send garbage, nothing or too much do not delay others.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

from .servers import seeded
from .target import Broken, target

REQUESTS = 100
"""Requests of one round."""
CLIENTS = 8
"""Requests at a time; some wait until the server gives them up."""
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "BREW", "get")
PATHS = (
    "/",
    "/pods",
    "/runningpods/",
    "/metrics",
    "/metrics/cadvisor",
    "/stats/summary",
    "/configz",
    "/logs/",
    "/logs/../../etc/shadow",
    "/logs/%2e%2e/%2e%2e/etc/shadow",
    "/exec/default/witness-target/main?command=id&output=1",
    "/run/default/witness-target/main?cmd=id",
    "/attach/default/witness-target/main",
    "/portForward/default/witness-target",
    "/containerLogs/default/witness-target/main",
    "/checkpoint/default/witness-target/main",
    "/debug/pprof/",
    "/debug/flags/v",
    "//pods",
    "/pods/",
    "/PODS",
    "/pods%00",
    "/pods;x",
    "/healthz/../pods",
    "/" + "a" * 20_000,
)
HEADERS = (
    "Authorization: Bearer x",
    "Authorization: Basic cm9vdDpyb290",
    "Authorization: Bearer " + "a" * 30_000,
    "X-Remote-User: system:masters",
    "Impersonate-User: admin",
    "Upgrade: SPDY/3.1\r\nConnection: Upgrade",
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x",
    "Transfer-Encoding: chunked",
    "Content-Length: 99999999999",
    "Content-Length: -1",
    "Host: \x00",
    "X: " + "a" * 100_000,
    "\r\n".join(f"X-{n}: 1" for n in range(500)),
)


def requests(rounds: int, seed: int) -> str:
    """Send requests without credentials and garbage in each round, over TLS and without; returns the answers' counts.

    Raises Broken for a status that begins with 1 or 2, and if the agent or the witness fails.
    """
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as place:
        port = place.getsockname()[1]
    answered: dict[str, int] = {}
    with target(
        f"--port={port}", "--address=127.0.0.1", "--authorization-mode=AlwaysAllow", "--anonymous-auth=false"
    ) as one:
        for number in range(rounds):
            rng = seeded(seed, "requests", number)
            sent = [(_bytes(rng), rng.random() < 0.9) for _ in range(REQUESTS)]
            with ThreadPoolExecutor(CLIENTS) as pool:
                statuses = list(pool.map(lambda request: _send(port, request[0], encrypted=request[1]), sent))
            for status in statuses:
                if status.startswith(("1", "2")):
                    raise Broken(f"a request without credentials was answered with {status}")
                answered[status] = answered.get(status, 0) + 1
            one.check()
    return f"{rounds * REQUESTS} requests; answers: {dict(sorted(answered.items()))}"


def _bytes(rng: random.Random) -> bytes:
    if rng.random() < 0.15:
        return rng.randbytes(rng.choice((1, 100, 70_000)))
    lines = [
        f"{rng.choice(METHODS)} {rng.choice(PATHS)} HTTP/{rng.choice(('1.1', '1.1', '1.0', '2.0', '9'))}"
    ]
    lines += rng.sample(HEADERS, rng.choice((0, 0, 0, 1, 2)))
    lines += ["Host: 127.0.0.1", "Connection: close", "", "x" * rng.choice((0, 0, 1, 5000))]
    return "\r\n".join(lines).encode()


def _send(port: int, data: bytes, *, encrypted: bool) -> str:
    """Send bytes on a connection of their own; returns the answer's status code, or ``none`` if there is no answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=15) as plain:
        try:
            with context.wrap_socket(plain) if encrypted else contextlib.nullcontext(plain) as line:
                line.sendall(data)
                line.shutdown(socket.SHUT_WR) if not encrypted else None
                return _status(line.recv(4096))
        except (OSError, ssl.SSLError):
            return "none"


def _status(answer: bytes) -> str:
    parts = answer.split(b" ", 2)
    return parts[1].decode(errors="replace") if answer.startswith(b"HTTP/") and len(parts) > 1 else "none"
