"""Benchmarks of the kubelet API's streams, against the runtime's own streaming URL.

The same client reads both. It does as little as it can: once its streams are open it counts the bytes that come,
frames included, so that it is not what is measured. Between it and the agent there is TLS, between it and the
runtime's URL there is none. All share the machine's processors: client, agent, containerd, and the program whose
output is read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from kubeletx.api import StreamRequest
from kubeletx.streaming import open_session
from kubeletx.streaming.spdy import Encoder, SynStream
from kubeletx.streaming.spdy.frames import HeaderList
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.lab import CriCalls, pod_manifest
from kubeletx_testing.lab.registry import free_port

from .lab import NODE, BenchLab, wait_ready, wait_running
from .model import Figure, Result, Sizes, median, now

ROUND_TRIP: Final = 1.2
PASSED_ON: Final = 0.8
LOG_MB_PER_SECOND: Final = 100.0
SPDY_MB_PER_SECOND: Final = 60.0
POD: Final = "streams"
PORT: Final = 7777
LINE_BYTES: Final = 100
_READ_BYTES: Final = 1 << 20
_TRUE: Final = StreamRequest(command=("true",))
_COMMANDS: Final = "v4.channel.k8s.io"
_PORTS: Final = "portforward.k8s.io"


class StreamLab(msgspec.Struct, kw_only=True):
    """A started agent that serves the kubelet API, with one running pod."""

    cri: CriCalls
    port: int
    tls: ssl.SSLContext
    sandbox_id: str
    container_id: str
    log: Path

    @property
    def url(self) -> str:
        """URL of the kubelet's API."""
        return f"https://127.0.0.1:{self.port}"

    def exec_url(self, command: Sequence[str], **streams: bool) -> str:
        """URL of a command at the agent's API."""
        query = [("command", word) for word in command] + [(name, "1") for name in streams]
        return f"{self.url}/exec/default/{POD}-{NODE}/main?{urlencode(query)}"

    def runtimes_exec_url(self, command: Sequence[str], **streams: bool) -> str:
        """URL of a command at the runtime, from a CRI Exec call."""
        url: str = self.cri.call("Exec", container_id=self.container_id, cmd=command, **streams).url
        return url

    def runtimes_port_url(self) -> str:
        """URL of the forwarded port at the runtime, from a CRI PortForward call."""
        url: str = self.cri.call("PortForward", pod_sandbox_id=self.sandbox_id, port=[PORT]).url
        return url


def stream_exec(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure a command that does nothing, from the request to its exit code."""
    floors, ours = [], []
    with stream_lab(bench, sizes) as lab:
        for number in range(4 * sizes.single_runs + 1):
            began = time.perf_counter()
            url = lab.runtimes_exec_url(_TRUE.command, stdout=True, stderr=True)
            floor = asyncio.run(run_to_end(url, None)) - began
            began = time.perf_counter()
            url = lab.exec_url(_TRUE.command, output=True, error=True)
            agent = asyncio.run(run_to_end(url, lab.tls)) - began
            if number:  # the first warms both
                floors.append(floor * 1000)
                ours.append(agent * 1000)
    ratio = median(ours) / median(floors)
    figure = Figure(
        label="a command that does nothing",
        value=round(median(ours), 1),
        unit="ms",
        goal=f"≤ {ROUND_TRIP:g} x the runtime's own",
        is_met=ratio <= ROUND_TRIP,
        floor=round(median(floors), 1),
        ratio=ratio,
        samples=tuple(ours),
    )
    return Result(
        name="stream-exec", figures=(figure,), series={"floor": floors, "agent": ours}, measured_at=now()
    )


def stream_logs(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the rate of a log with lines of 100 bytes, once read and once followed."""
    count = sizes.stream_mib << 20
    with stream_lab(bench, sizes) as lab:
        write_log(lab.log, count // LINE_BYTES)
        size = count // LINE_BYTES * LINE_BYTES
        path = f"/containerLogs/default/{POD}-{NODE}/main?limitBytes={size}"
        rates = {
            label: [read_log(lab, path + more, size) for _ in range(sizes.runs)]
            for label, more in (("a log", ""), ("a log that is followed", "&follow=true"))
        }
    figures = [
        rate_figure(f"{label}, lines of 100 bytes", samples, goal=LOG_MB_PER_SECOND)
        for label, samples in rates.items()
    ]
    return Result(name="stream-logs", figures=tuple(figures), measured_at=now())


def stream_rates(bench: BenchLab, sizes: Sizes) -> Result:
    """Measure the rates of a command's output and of a forwarded port.

    The agent passes the command's stream on; it decodes the SPDY of the port's.
    """
    count = sizes.stream_mib << 20
    command = ("dd", "if=/dev/zero", "bs=64k", f"count={count >> 16}")

    def passed(url: str, tls: ssl.SSLContext | None) -> float:
        return receive(url, tls, _COMMANDS, ((("streamtype", "error"),), (("streamtype", "stdout"),)), count)

    def forwarded(url: str, tls: ssl.SSLContext | None) -> float:
        pair = (("port", str(PORT)), ("requestid", "0"))
        streams = ((("streamtype", "error"), *pair), (("streamtype", "data"), *pair))
        return receive(url, tls, _PORTS, streams, count)

    with stream_lab(bench, sizes) as lab:
        rates = [
            compared(
                lambda: passed(lab.runtimes_exec_url(command, stdout=True), None),
                lambda: passed(lab.exec_url(command, output=True), lab.tls),
                sizes.runs,
            ),
            compared(
                lambda: forwarded(lab.runtimes_port_url(), None),
                lambda: forwarded(f"{lab.url}/portForward/default/{POD}-{NODE}", lab.tls),
                sizes.runs,
            ),
        ]
    (exec_floor, exec_ours), (port_floor, port_ours) = rates
    return Result(
        name="stream-rates",
        figures=(
            rate_figure("a stream that is handed through", exec_ours, floor=exec_floor, share=PASSED_ON),
            rate_figure(
                "a forwarded port, SPDY at both ends of the agent",
                port_ours,
                floor=port_floor,
                goal=SPDY_MB_PER_SECOND,
            ),
        ),
        measured_at=now(),
    )


async def run_to_end(url: str, tls: ssl.SSLContext | None) -> float:
    """Run one command; returns the time (`time.perf_counter`) at which its exit code was known."""
    session = await open_session(url, _TRUE, tls=tls)
    async for _ in session.output():
        pass
    code = await session.wait()
    ended_at = time.perf_counter()
    await session.close()
    if code:
        raise RuntimeError(f"true ended with {code}")
    return ended_at


def receive(
    url: str, tls: ssl.SSLContext | None, protocol: str, streams: Sequence[HeaderList], count: int
) -> float:
    """Open the streams and read `count` bytes; returns MB/s from the opening to the last byte."""
    parts = urlsplit(url)
    buffer, encoder = bytearray(_READ_BYTES), Encoder()
    with connected(parts.port or 0, tls) as connection:
        connection.sendall(
            f"POST {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\n"
            f"Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head and (data := connection.recv(1)):
            head += data
        if b" 101 " not in head:
            raise RuntimeError(f"{url} answered {head!r}")
        began = time.perf_counter()
        for number, headers in enumerate(streams):
            connection.sendall(encoder.encode(SynStream(stream_id=2 * number + 1, headers=headers)))
        got = 0
        while got < count:
            size = connection.recv_into(buffer)
            if not size:
                raise RuntimeError(f"{url} ended after {got} bytes")
            got += size
        return got / (time.perf_counter() - began) / 1e6


@contextmanager
def connected(port: int, tls: ssl.SSLContext | None) -> Iterator[socket.socket]:
    """Context manager: a connection to this port of the machine, with TLS unless `tls` is None."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        if tls is None:
            yield plain
            return
        with tls.wrap_socket(plain, server_hostname=NODE) as connection:
            yield connection


def compared(
    floor: Callable[[], float], ours: Callable[[], float], runs: int
) -> tuple[list[float], list[float]]:
    """Call both in turns, `runs` times; returns the rates of each."""
    rates = [(floor(), ours()) for _ in range(runs)]
    return [rate for rate, _ in rates], [rate for _, rate in rates]


def write_log(path: Path, lines: int) -> None:
    """Append `lines` log lines in the runtime's format."""
    line = b"2030-01-01T00:00:00.123456789Z stdout F " + b"x" * (LINE_BYTES - 1) + b"\n"
    block = line * 10_000
    with path.open("ab") as file:
        for _ in range(lines // 10_000):
            file.write(block)
        file.write(line * (lines % 10_000))


def read_log(lab: StreamLab, path: str, count: int) -> float:
    """Read a log through the API; returns MB/s of `count` bytes, from the request to the end of the answer."""
    buffer = bytearray(_READ_BYTES)
    with connected(lab.port, lab.tls) as connection:
        began = time.perf_counter()
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {NODE}\r\nConnection: close\r\n\r\n".encode())
        got = connection.recv_into(buffer)
        status = bytes(buffer[:got]).split(b" ", 2)[1]
        while size := connection.recv_into(buffer):
            got += size
        seconds = time.perf_counter() - began
    if status != b"200" or got < count:
        raise RuntimeError(
            f"{path}: answered with {status.decode()} and {got} bytes instead of 200 and {count}"
        )
    return count / seconds / 1e6


def rate_figure(
    label: str,
    samples: Sequence[float],
    *,
    goal: float | None = None,
    floor: Sequence[float] | None = None,
    share: float | None = None,
) -> Figure:
    """Figure in MB/s. Its goal is `goal` in MB/s or, if that is None, `share` of the floor's rate."""
    value = median(samples)
    ratio = value / median(floor) if floor else None
    return Figure(
        label=label,
        value=round(value, 1),
        unit="MB/s",
        goal=f"≥ {goal:g}" if goal is not None else f"≥ {share:g} x the runtime's URL",
        is_met=value >= goal if goal is not None else ratio is not None and ratio >= (share or 0),
        floor=round(median(floor), 1) if floor else None,
        ratio=ratio,
        samples=tuple(samples),
    )


@contextmanager
def stream_lab(bench: BenchLab, sizes: Sizes) -> Iterator[StreamLab]:
    """Context manager: an agent with the pod ``streams``, whose port sends as many bytes as are measured."""
    authority = CertificateAuthority(bench.lab.base_dir / f"authority-{time.monotonic_ns()}")
    admin = authority.client("admin", ["system:masters"])
    tls = ssl.create_default_context()
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    tls.load_cert_chain(admin.cert_file, admin.key_file)
    port = free_port()
    agent = bench.agent(
        flags=(
            f"--port={port}",
            "--address=127.0.0.1",
            f"--client-ca-file={authority.ca_file}",
            "--authorization-mode=AlwaysAllow",
            "--container-log-max-size=10Gi",  # the log that is measured stays one file
        )
    )
    serve = ("nc", "-ll", "-p", str(PORT), "-e", "dd", "if=/dev/zero", "bs=64k")
    count = sizes.stream_mib << 4
    with agent, bench.containerd.cri() as cri:
        wait_ready(agent)
        bench.put_manifests({POD: pod_manifest(POD, command=(*serve, f"count={count}"))})
        wait_running(cri, [POD])
        agent.wait_for(POD)
        (container,) = cri.call("ListContainers", filter={"state": {"state": 1}}).containers
        (log,) = agent.logs_dir.glob(f"default_{POD}-{NODE}_*/main/*.log")
        yield StreamLab(
            cri=cri,
            port=port,
            tls=tls,
            sandbox_id=container.pod_sandbox_id,
            container_id=container.id,
            log=log,
        )
        bench.remove_pods(agent)
