"""Requests to the kubelet's API that no good client sends, byte by byte, to an agent with a real pod."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.lab.registry import free_port
from tests.integration.support.bench import Bench
from tests.integration.support.kubelet_client import KubeletClient
from tests.integration.support.survival import until

SECONDS = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def serving(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate, key and client authority of the server, which tests replace."""
    pair = authority.server("kubelet")
    return pair.cert_file, pair.key_file


@pytest.fixture(scope="module")
def client_ca(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clients") / "ca.crt"
    path.write_bytes(authority.pem)
    return path


@pytest.fixture(scope="module")
def bench(make_bench: Callable[..., Bench], serving: tuple[Path, Path], client_ca: Path) -> Bench:
    bench = make_bench(
        flags=(
            f"--port={free_port()}",
            "--address=127.0.0.1",
            f"--client-ca-file={client_ca}",
            f"--tls-cert-file={serving[0]}",
            f"--tls-private-key-file={serving[1]}",
            "--authorization-mode=AlwaysAllow",
            "--v=10",
        )
    )
    bench.put("web", "echo hello; sleep 10000")
    bench.ready("web")
    return bench


@pytest.fixture(scope="module")
def port(bench: Bench) -> int:
    endpoints = bench.agent.node().status.daemon_endpoints
    assert endpoints is not None
    assert endpoints.kubelet_endpoint is not None
    return endpoints.kubelet_endpoint.port


@pytest.fixture(scope="module")
def kubelet(authority: CertificateAuthority, port: int) -> KubeletClient:
    return KubeletClient(port, authority.client("admin", ["system:masters"]))


def send(kubelet: KubeletClient, data: bytes, *, end: bytes | None = None) -> bytes:
    """What is answered to these very bytes, up to `end`, or until the server closes."""
    with (
        socket.create_connection(("127.0.0.1", kubelet.port), timeout=SECONDS) as raw,
        kubelet.tls.wrap_socket(raw, server_hostname="node") as connection,
    ):
        got = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            connection.sendall(data)
            while piece := connection.recv(1 << 16):
                got += piece
                if end is not None and end in got:
                    break
        return got


def code_of(answer: bytes) -> int:
    """Of its first line; 0: it was cut without one."""
    words = answer.split(b"\r\n", 1)[0].split()
    return int(words[1]) if len(words) > 1 else 0


def ask(kubelet: KubeletClient, target: str, method: str = "GET", *headers: str) -> tuple[int, bytes]:
    """Status and whole answer to a request whose target is sent as it is written."""
    is_upgrade = UPGRADE[0] in headers
    kind = () if is_upgrade else ("Connection: close",)
    head = "\r\n".join((f"{method} {target} HTTP/1.1", "Host: node", *kind, *headers))
    data = head.encode("latin-1") + b"\r\n\r\n"
    answer = send(kubelet, data, end=b"\r\n\r\n" if is_upgrade else None)
    return code_of(answer), answer


LOG = "/containerLogs/default/web-lab/main"
PLACES = [
    "/containerLogs/default/web-lab/../../../../../etc/passwd",
    "/containerLogs/default/web-lab/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/containerLogs/default/web-lab/%2e%2e/%2e%2e/etc/passwd",
    "/containerLogs/default/..%2fweb-lab/main",
    "/containerLogs/..%2fdefault/web-lab/main",
    "/containerLogs/default%2fweb-lab/main",
    "/containerLogs/default/web-lab/main%00",
    "/containerLogs/default/web-lab/main%0a",
    "/containerLogs/default/web-lab/main/",
    "/containerLogs/default/web-lab//main",
    "/containerLogs//web-lab/main",
    "/containerLogs/default/web-lab/%6dain%2f..",
    "/containerLogs/default/web-lab/%ff%fe",
    "/containerLogs/default/WEB-LAB/main",
    "/containerLogs/default/web-lab/*",
    "/containerLogs/./default/web-lab/none",
    "/pods/../containerLogs/default/none/main",
    "/..%2fpods",
    "/%2e%2e/pods",
    "//pods",
    "/pods%00",
    "/pods%2f",
    "/pods;x=y",
    "/exec/default/web-lab/..%2fmain?command=id&output=1",
    "/exec/default/web-lab/main/x/y?command=id&output=1",
    "/exec/default/web-lab/main?command=id",
    "/exec/default/web-lab/main?output=1",
    "/exec/default/web-lab/main?command=id&output=true",
    "/exec/default/web-lab/main?command=id&output=1",
    "/attach/default/web-lab/main%2f?output=1",
    "/portForward/default/..%2fweb-lab",
    "/portForward/default/web-lab?port=0",
    "/portForward/default/web-lab?port=99999",
    "/portForward/default/web-lab?port=-1",
    "/portForward/default/web-lab?port=80%0d%0aX:y",
    "/portForward/default/web-lab?port=%D9%A8%D9%A0",
    "/checkpoint/default/web-lab/main%2f..",
    "/logs/../../etc/passwd",
    "/debug/pprof/",
    "http://169.254.169.254/latest/meta-data",
    "http://node/../../etc/passwd",
    "*",
    "pods",
    "/" + "a/" * 20_000,
    "/" + "%2e%2e/" * 5_000,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[:60])
def test_places_that_are_none_are_refused(kubelet: KubeletClient, place: str) -> None:
    code, answer = ask(kubelet, place)
    assert code in (400, 404, 405), answer[:300]
    assert b"root:" not in answer
    assert b"Traceback" not in answer
    assert b"hello" not in answer


UPGRADE = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
STREAMS = [
    "/exec/default/..%2fweb-lab/main?command=id&output=1",
    "/exec/default/web-lab/main%00?command=id&output=1",
    "/exec/default/web-lab/main%2f..?command=id&output=1",
    "/exec/default/web-lab/none?command=id&output=1",
    "/exec/default/none/main?command=id&output=1",
    "/exec/default/web-lab/another-uid/main?command=id&output=1",
    "/exec/default/web-lab/main?output=1",
    "/exec/default/web-lab/main?command=id",
    "/exec/default/web-lab/main?command=id&output=yes",
    "/exec/kube-system/web-lab/main?command=id&output=1",
    "/attach/default/web-lab/none?output=1",
    "/attach/default/web-lab/main",
    "/portForward/default/none",
    "/portForward/default/..%2fweb-lab",
    "/portForward/default/web-lab/another-uid",
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("place", STREAMS)
def test_streams_from_places_that_are_none_are_refused(
    kubelet: KubeletClient, place: str, method: str
) -> None:
    protocol = "portforward.k8s.io" if place.startswith("/portForward") else "v4.channel.k8s.io"
    code, answer = ask(kubelet, place, method, *UPGRADE, f"X-Stream-Protocol-Version: {protocol}")
    assert code in (400, 404), answer[:300]


PARAMETERS = [
    ("tailLines=-1", (400, 422)),
    ("tailLines=x", (400,)),
    ("tailLines=1e3", (400,)),
    ("tailLines=99999999999999999999999", (400,)),
    ("tailLines=%D9%A1", (400,)),
    ("limitBytes=-5", (400, 422)),
    ("limitBytes=0", (422,)),
    ("limitBytes=99999999999999999999999", (400,)),
    ("sinceSeconds=0", (422,)),
    ("sinceSeconds=-9", (400, 422)),
    ("sinceSeconds=99999999999999999999", (400,)),
    ("tailLines=" + "9" * 5000, (400,)),
    ("sinceSeconds=nan", (400,)),
    ("sinceTime=2026-13-45T00:00:00Z", (400,)),
    ("sinceTime=0", (400,)),
    ("sinceTime=2026-01-01", (400,)),
    ("sinceTime=2026-01-01T00:00:00Z&sinceSeconds=5", (422,)),
    ("sinceTime=0001-01-01T00:00:00%2B14:00", (400,)),
    ("sinceTime=9999-12-31T23:59:59-14:00", (400,)),
]


@pytest.mark.parametrize(("query", "codes"), PARAMETERS, ids=[query[:40] for query, _ in PARAMETERS])
def test_parameters_that_make_no_sense_are_refused(
    kubelet: KubeletClient, query: str, codes: tuple[int, ...]
) -> None:
    code, answer = ask(kubelet, f"{LOG}?{query}")
    assert code in codes, answer[:300]
    assert b"Traceback" not in answer


@pytest.mark.parametrize("query", ["sinceSeconds=9000000000000000000", "tailLines=9000000000000000000"])
def test_large_numbers_mean_everything(kubelet: KubeletClient, query: str) -> None:
    assert kubelet.get(f"{LOG}?{query}") == (200, "hello\n")


HEADS = [
    b"GET /pods\r\n\r\n",
    b"GET /pods HTTP/9.9\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    b"GET /pods HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\n folded: yes\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
    b"GET /" + b"x" * 400_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    b"GET /pods HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5000)) + b"\r\n",
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: repr(head[:40]))
def test_heads_that_are_none_or_too_large_are_refused(kubelet: KubeletClient, head: bytes) -> None:
    answer = send(kubelet, head)
    assert code_of(answer) in (0, 400, 413, 414, 431, 505), answer[:300]
    assert b"PodList" not in answer


def test_the_agent_is_well_after_all_that(bench: Bench, kubelet: KubeletClient) -> None:
    assert kubelet.get("/healthz") == (200, "ok")
    assert kubelet.get(LOG) == (200, "hello\n")
    assert "Traceback" not in bench.agent.log_path.read_text()
    assert "Failed to answer a request" not in bench.agent.log_path.read_text()


def test_who_says_nothing_is_cut(kubelet: KubeletClient) -> None:
    """Before TLS: after the ten seconds that a handshake has."""
    with socket.create_connection(("127.0.0.1", kubelet.port), timeout=SECONDS) as raw:
        assert raw.recv(1) == b""


def test_two_hundred_who_say_nothing_keep_no_one_out_and_take_little(
    bench: Bench, kubelet: KubeletClient
) -> None:
    assert kubelet.get("/healthz") == (200, "ok")
    before = resident_bytes(bench.agent.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", kubelet.port), timeout=SECONDS))
        assert kubelet.get("/healthz") == (200, "ok")
        assert resident_bytes(bench.agent.pid) - before < 200 * 150_000, (
            "asyncio's own way are 300 KB for each"
        )


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def serial_of(kubelet: KubeletClient) -> int:
    """Of the certificate that the server shows."""
    with (
        socket.create_connection(("127.0.0.1", kubelet.port), timeout=SECONDS) as raw,
        kubelet.tls.wrap_socket(raw, server_hostname="node") as connection,
    ):
        shown = connection.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def test_a_serving_certificate_that_is_replaced_is_shown(
    kubelet: KubeletClient, authority: CertificateAuthority
) -> None:
    first = serial_of(kubelet)
    authority.server("kubelet")  # the same files
    until(lambda: serial_of(kubelet) != first, "the new certificate")


def test_an_authority_of_clients_that_is_replaced_counts(
    kubelet: KubeletClient, client_ca: Path, tmp_path: Path
) -> None:
    other = CertificateAuthority(tmp_path / "other")
    stranger = KubeletClient(kubelet.port, other.client("admin", ["system:masters"]))
    assert status_of(stranger) == 0
    before = client_ca.read_bytes()
    client_ca.write_bytes(other.pem)
    until(lambda: status_of(stranger) == 200, "clients of the new authority are let in")
    assert status_of(kubelet) == 0
    client_ca.write_bytes(before)
    until(lambda: status_of(kubelet) == 200, "and those of the old one again")


def status_of(kubelet: KubeletClient) -> int:
    """0: the handshake failed."""
    try:
        return kubelet.get("/healthz")[0]
    except OSError:
        return 0


def test_files_have_a_kubelets_modes(bench: Bench, serving: tuple[Path, Path]) -> None:
    root = bench.agent.root_dir
    pod = bench.agent.pod("web")
    assert pod is not None
    wanted = {
        root / "pods": 0o750,
        root / "pods" / pod.metadata.uid: 0o750,
        root / "pods" / pod.metadata.uid / "etc-hosts": 0o644,
        root / "kubeletx.sock": 0o600,
        root / "kubeletx.db": 0o600,
        bench.agent.logs_dir: 0o755,
    }
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in wanted if path.exists()}
    assert found == {path: mode for path, mode in wanted.items() if path.exists()}
    assert set(found) == set(wanted)
