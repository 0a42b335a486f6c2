"""Logs, figures, commands, console, ports and probes of one real guest, through the whole agent.

Behind a libvirtd of its own with a virtlogd, as on an operator's node; virtlogd rotates the raw console every few
lines. All tests of the file share the guest, in order: it takes longer to boot than everything asked of it.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import re
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.pods.logs.format import parse_line
from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.machines import PASSWORD, UP, load_machine_image
from tests.integration.support.bench import Bench
from tests.integration.support.machines import type_until, wait_console
from tests.integration.support.survival import container, holds, until
from tests.integration.support.vm_pods import address_of, ask, make_machines

pytestmark = pytest.mark.timeout(300)  # above what the waits of any one test allow together

POD = "streams-lab"
LINES = 1200
BOOT_SECONDS = 150


@pytest.fixture(scope="module")
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    one = PrivateLibvirtd(lab.base_dir, name="lv-streams", virtlogd=4096)
    one.start()
    yield one
    one.end()


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench],
    lab: Lab,
    libvirtd: PrivateLibvirtd,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    directory = tmp_path_factory.mktemp("streams")
    agent = {"containerLogMaxSize": "64Ki"}
    bench = make_machines(make_bench, lab, directory, endpoint=libvirtd.endpoint, agent=agent)
    put_manifest(bench.manifests, manifest())
    wait_console(bench.agent, POD, UP, timeout_seconds=BOOT_SECONDS)
    return bench


def manifest() -> dict[str, object]:
    machine = {
        "name": "vm",
        "image": str(load_machine_image()),
        "resources": {"limits": {"cpu": "1", "memory": "192Mi"}},
        "startupProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 300},
        "readinessProbe": {
            "httpGet": {"path": "/index.html", "port": 80},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
        },
        "livenessProbe": {
            "exec": {"command": ["test", "!", "-e", "/run/dead"]},
            "periodSeconds": 1,
            "timeoutSeconds": 20,
            "failureThreshold": 2,
        },
    }
    dns = {"nameservers": ["192.0.2.53"], "searches": ["guests.example.org"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "streams", "annotations": {"kubeletx.io/workload-type": "vm"}},
        "spec": {
            "terminationGracePeriodSeconds": 2,
            "dnsPolicy": "None",
            "dnsConfig": dns,
            "containers": [machine],
        },
    }


def test_probes_ask_the_pods_address_and_the_guest(bench: Bench) -> None:
    bench.ready("streams")
    assert bench.agent.cli("exec", POD, "--", "mv", "/www/index.html", "/www/away").returncode == 0
    bench.until("streams", lambda pod: not is_ready(pod))
    assert bench.agent.cli("exec", POD, "--", "mv", "/www/away", "/www/index.html").returncode == 0
    bench.ready("streams")
    assert container(bench.pod("streams"), "vm").restart_count == 0


def test_the_guest_has_the_pods_name_servers_and_search_list(bench: Bench) -> None:
    reported = bench.agent.cli("exec", POD, "--", "cat", "/etc/resolv.conf").stdout
    assert reported.splitlines() == ["nameserver 192.0.2.53", "search guests.example.org"]


def test_a_console_is_followed_cut_and_timed_like_any_log(bench: Bench) -> None:
    with popen(bench, "logs", "-f", "--tail=1", POD) as follower:
        output = follower.stdout
        assert output is not None
        say(bench, "echo; echo before and after")  # after the login prompt
        until(lambda: "before and after" in output.readline(), "the line in logs -f")
    until(lambda: bench.agent.cli("logs", "--tail=1", POD).stdout == "before and after\n", "the last line")
    timed = bench.agent.cli("logs", "--tail=1", "--timestamps", POD).stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\S* before and after\n", timed)
    assert len(bench.agent.cli("logs", "--limit-bytes=5", POD).stdout) == 5


def test_a_console_that_agent_and_virtlogd_rotate_loses_no_line(bench: Bench) -> None:
    say(bench, f"awk 'BEGIN {{ for (i = 1; i <= {LINES}; i++) printf \"line %04d of the console\\n\", i }}'")
    last = f"line {LINES:04} of the console"
    directory = bench.agent.logs_dir / f"default_{POD}_{bench.pod('streams').metadata.uid}" / "vm"
    until(lambda: any(last in text for text in texts(directory)), "the last line")
    found = [text for text in texts(directory) if re.fullmatch(r"line \d{4} of the console", text)]
    assert found == [f"line {number:04} of the console" for number in range(1, LINES + 1)]

    def has(pattern: str) -> bool:
        return any(re.fullmatch(pattern, path.name) for path in directory.iterdir())

    until(lambda: has(r"0\.log\.\d{8}-\d{6}(\.gz)?"), "a rotated log")
    until(lambda: has(r"0\.raw\.0"), "a raw file that virtlogd rotated")


def test_figures_of_a_guest_are_shown_like_a_containers(bench: Bench) -> None:
    def row() -> re.Match[str] | None:
        return re.match(
            rf"{POD} +([1-9]\d*)m +(\d+)Mi", bench.agent.cli("top", "pods", POD, "--no-headers").stdout
        )

    assert int(until(row, "figures of the guest")[2]) > 32
    (pod,) = [one for one in bench.agent.usage().pods if one.name == POD]
    assert [one.name for one in pod.containers] == ["vm"]


def test_commands_and_the_console_work_through_a_libvirtd(bench: Bench) -> None:
    done = bench.agent.cli("exec", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err\n" in done.stderr
    with popen(bench, "attach", "-i", POD) as session:
        type_until(session, "\n", "login:")
        type_until(session, "root\n", "Password:")
        type_until(session, f"{PASSWORD}\n", "#")
        type_until(session, "echo six times seven is $((6*7))\n", "seven is 42")


def test_commands_take_and_give_more_than_the_guest_agents_messages_hold(bench: Bench) -> None:
    data = random.Random(1).randbytes(1_500_000)
    assert piped(bench, "sha256sum", stdin=data).split()[0] == hashlib.sha256(data).hexdigest().encode()
    # Over 10 MiB in one answer libvirt gives the agent up.
    assert len(piped(bench, "head", "-c", "9000000", "/dev/zero")) == 9_000_000
    assert piped(bench, "echo", "still here") == b"still here\n"


@pytest.mark.parametrize("has_tar", [True, False])
def test_kubectls_cp_works_with_and_without_a_tar_in_the_guest(
    bench: Bench, tmp_path: Path, has_tar: bool
) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "large").write_bytes(random.Random(2).randbytes(1_000_000))
    (tree / "sub" / "run me").write_text("#!/bin/sh\n")
    (tree / "sub" / "run me").chmod(0o750)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(tree, "tree")
    piped(bench, "mkdir", "-p", "/tmp/copies")
    if not has_tar:
        piped(bench, "mv", "/bin/tar", "/bin/away")
    try:
        piped(bench, "tar", "-xmf", "-", "-C", "/tmp/copies", stdin=buffer.getvalue())
        back = piped(bench, "tar", "cf", "-", "tmp/copies/tree")  # the agent runs in /
    finally:
        if not has_tar:
            piped(bench, "mv", "/bin/away", "/bin/tar")
    with tarfile.open(fileobj=io.BytesIO(back)) as archive:
        archive.extractall(tmp_path / "back", filter="data")
    copied = tmp_path / "back" / "tmp" / "copies" / "tree"
    assert (copied / "large").read_bytes() == (tree / "large").read_bytes()
    assert (copied / "sub" / "run me").stat().st_mode & 0o777 == 0o750
    piped(bench, "rm", "-r", "/tmp/copies")


def test_a_port_is_forwarded_into_the_guest_and_a_silent_one_is_reported(bench: Bench) -> None:
    with forwarded(bench, 80) as (port, _):
        assert ask("127.0.0.1", port=port) == f"{POD}\n"
        assert ask("127.0.0.1", "/seed/meta-data", port=port) == ask(
            address_of(bench, "streams"), "/seed/meta-data"
        )
    with forwarded(bench, 4) as (port, process):
        with socket.create_connection(("127.0.0.1", port), 60) as one, suppress(ConnectionError):
            assert one.recv(1) == b""
        assert process.stderr is not None
        assert f"cannot connect to port 4 of machine default/{POD}" in process.stderr.readline()


def test_the_guest_reaches_a_container_over_the_pod_network(bench: Bench) -> None:
    script = "mkdir -p /www && echo from a container > /www/index.html && exec httpd -f -p 8080 -h /www"
    bench.put("server", script, spec={"terminationGracePeriodSeconds": 1})
    address = bench.ready("server").status.pod_ip

    # With nc: wget of the guest's busybox, which is linked statically, crashes.
    script = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 10 {address} 8080"

    def fetched() -> bool:
        return "from a container" in bench.agent.cli("exec", POD, "--", "sh", "-c", script).stdout

    until(fetched, "an answer of the container")
    bench.remove("server")


@pytest.mark.parametrize("verb", ["pause", "suspend"])
def test_probes_rest_while_the_machine_does(bench: Bench, verb: str) -> None:
    bench.ready("streams")
    assert bench.agent.cli("vm", verb, POD).returncode == 0
    try:
        bench.until("streams", lambda pod: not is_ready(pod))
        before = failures(bench)
        # The exec probe would fail each second: no command can run now.
        holds(lambda: failures(bench) == before, "no probe fails", seconds=5)
    finally:
        done = bench.agent.cli("vm", "resume", POD)
    assert done.returncode == 0, done.stderr
    bench.ready("streams")
    assert restarts(bench) == 0


def test_a_guest_that_fails_its_probe_starts_again_and_its_console_before_stays_readable(
    bench: Bench,
) -> None:
    say(bench, "echo the end is near")
    until(lambda: "the end is near" in bench.agent.cli("logs", POD).stdout, "the guest's last words")
    assert bench.agent.cli("exec", POD, "--", "touch", "/run/dead").returncode == 0
    bench.until("streams", lambda pod: container(pod, "vm").restart_count == 1)
    until(lambda: "the end is near" in bench.agent.cli("logs", "--previous", POD).stdout, "the log before")
    log = wait_console(bench.agent, POD, UP, timeout_seconds=BOOT_SECONDS)
    assert "the end is near" not in log
    assert bench.event("streams", "Unhealthy", "iveness")


def test_nothing_stands_in_the_way_of_removing_its_logs(bench: Bench) -> None:
    directory = bench.agent.logs_dir / f"default_{POD}_{bench.pod('streams').metadata.uid}"
    assert directory.is_dir()
    bench.remove("streams")
    assert not directory.exists()
    assert "Failed to remove directories" not in bench.agent.log_path.read_text()


# --- helpers ---


def is_ready(pod: Pod) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


def restarts(bench: Bench) -> int:
    return container(bench.pod("streams"), "vm").restart_count


def failures(bench: Bench) -> int:
    """How often a probe was told to have failed."""
    return sum(one.get("count") or 1 for one in bench.events("streams") if one["reason"] == "Unhealthy")


def say(bench: Bench, script: str) -> None:
    """Let the guest print on its console."""
    done = bench.agent.cli("exec", POD, "--", "sh", "-c", f"{{ {script}; }} > /dev/ttyS0")
    assert done.returncode == 0, done.stderr


def texts(directory: Path) -> list[str]:
    """Every line of the present log and the rotated ones, oldest first; each is in CRI format."""
    while True:
        rotated = rotated_logs(directory)
        with suppress(FileNotFoundError):  # packed or rotated just now
            data = [path.read_bytes() for path in [*rotated, directory / "0.log"]]
            if rotated == rotated_logs(directory):
                break
    found = []
    for path, content in zip([*rotated, directory / "0.log"], data, strict=True):
        plain = gzip.decompress(content) if path.suffix == ".gz" else content
        for line in plain.split(b"\n")[:-1]:
            record = parse_line(line)
            assert record is not None, line
            found.append(record.text.decode(errors="replace").strip("\r"))
    return found


def rotated_logs(directory: Path) -> list[Path]:
    """Oldest first, each in one form."""
    whole = [path for path in sorted(directory.glob("0.log.*")) if path.suffix != ".tmp"]
    return [path for path in whole if path.with_name(f"{path.name}.gz") not in whole]


def piped(bench: Bench, *command: str, stdin: bytes | None = None) -> bytes:
    """What the command in the guest writes; it must end well."""
    interactive = () if stdin is None else ("-i",)
    done = subprocess.run(
        [
            bench.agent.argv()[0],
            f"--root-dir={bench.agent.root_dir}",
            "exec",
            *interactive,
            POD,
            "--",
            *command,
        ],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    return done.stdout


@contextmanager
def popen(bench: Bench, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command of the agent's that goes on, until the end of the block."""
    with subprocess.Popen(
        [bench.agent.argv()[0], f"--root-dir={bench.agent.root_dir}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def forwarded(bench: Bench, port: int) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The local port, and the command that forwards it."""
    with popen(bench, "port-forward", POD, f":{port}") as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        match = re.search(r":(\d+) -> ", said)
        assert match, said
        yield int(match[1]), process
