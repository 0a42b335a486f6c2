"""Hostile paths, options and clients against a running storage agent."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.agent.server import MAX_CONNECTIONS
from kubeletx_flexvolume.agent.wire import SOCKET
from kubeletx_flexvolume.driver import program

from kubeletx_testing.waiting import block_until
from tests.integration.storage.storage_agent import AgentNode, Reply, finished

pytestmark = pytest.mark.usefixtures("nothing_is_left")

NOBODY = 65534


@pytest.fixture
def still_mounts(node: AgentNode) -> Iterator[None]:
    """After the test, the agent mounts volumes as before."""
    yield
    assert node.mount("after", "pv-after").is_success
    assert node.unmount("after", "pv-after").is_success


def ask(node: AgentNode, *arguments: str, call: str = "mount") -> dict[str, Any]:
    """Send a call past the driver, so that it may contain what a command line cannot, such as NUL."""
    request = {"protocol": program.PROTOCOL, "driver": "0.1.0", "call": call, "arguments": list(arguments)}
    return send(node, json.dumps(request).encode())


def send(node: AgentNode, text: bytes, *, length: int | None = None) -> dict[str, Any]:
    with connect(node) as one:
        one.sendall((len(text) if length is None else length).to_bytes(4, "big") + text)
        answer = b""
        while part := one.recv(65536):
            answer += part
    found: dict[str, Any] = json.loads(answer[4:]) if answer else {}
    return found


def connect(node: AgentNode) -> socket.socket:
    descriptor = os.open(node.socket.parent, os.O_PATH)
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        one.settimeout(20)
        one.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
    except BaseException:
        one.close()
        raise
    finally:
        os.close(descriptor)
    return one


# --- paths ---


def hostile_targets(node: AgentNode) -> list[str]:
    good = str(node.target("one", "pv-1"))
    return [
        "",
        "/",
        "pods/one-uid/volumes/kubeletx.io~storage/pv-1",
        f"{good}/..",
        f"{good}/../../../../../../outside",
        good.replace("/one-uid/", "/../"),
        good.replace("/one-uid/", "/./one-uid/"),
        good.replace("/volumes/", "/etc-hosts/"),
        good.replace("kubeletx.io~storage", "example.com~other"),
        good.replace("pv-1", ".."),
        good.replace("pv-1", "-pv"),
        good.replace("pv-1", "PV"),
        good.replace("pv-1", "p" * 254),
        good.replace("one-uid", "u" * 300),
        good.replace("one-uid", "-uid"),
        good.replace("one-uid", "\N{SNOWMAN}"),
        good.replace(str(node.root), str(node.directory / "outside")),
        good.replace(str(node.root), f"{node.root}x"),
        "/" + "a/" * 3000 + "pv-1",
        f"{good}\0/etc",
        f"\0{good}",
        f"{good}\n",
    ]


@pytest.mark.usefixtures("still_mounts")
def test_a_target_outside_the_volumes_of_pods_is_refused(node: AgentNode) -> None:
    before = sorted(node.directory.rglob("*"))
    for target in hostile_targets(node):
        for call, arguments in (("mount", [node.options_text("one", "pv-1")]), ("unmount", [])):
            answer = ask(node, target, *arguments, call=call)
            assert answer["status"] == "Failure", (call, target)
            assert len(answer["message"]) < 1000
    assert [one for one in sorted(node.directory.rglob("*")) if one not in before] == []


def test_a_target_with_more_slashes_is_the_same_target(node: AgentNode) -> None:
    node.make_target("one", "pv-slash")
    text = node.options_text("one", "pv-slash")
    target = str(node.target("one", "pv-slash"))
    assert node.call("mount", f"/{target.replace('/pods/', '//pods/')}//", text).is_success
    assert node.target("one", "pv-slash") == Path(node.mounts()[-1])
    assert node.call("unmount", f"{target}/").is_success


@pytest.mark.parametrize("part", ["pods", "one-uid", "volumes", "kubeletx.io~storage", "pv-link"])
def test_a_link_on_the_way_to_a_target_is_not_followed(node: AgentNode, tmp_path: Path, part: str) -> None:
    target = node.target("one", "pv-link")
    node.make_target("one", "pv-link")
    outside = tmp_path / "outside"
    linked = next(one for one in (target, *target.parents) if one.name == part)
    linked.rename(outside)
    linked.symlink_to(outside)
    try:
        reply = node.call("mount", str(target), node.options_text("one", "pv-link"))
        assert not reply.is_success
        assert "it or a part of it is a link" in reply.message
        assert str(outside) not in str(node.namespace.table())
        assert node.call("unmount", str(target)).is_success  # nothing is mounted
    finally:
        linked.unlink()
        outside.rename(linked)


def test_a_link_at_the_directory_for_all_pods_is_not_followed(node: AgentNode, tmp_path: Path) -> None:
    linked = node.root / "plugins"
    moved = node.root / "moved"
    if linked.exists():
        linked.rename(moved)
    linked.symlink_to(tmp_path)
    try:
        reply = node.mount("one", "pv-global")
        assert "it or a part of it is a link" in reply.message
        assert list(tmp_path.iterdir()) == []
        node.becomes_clean()
    finally:
        linked.unlink()
        if moved.exists():
            moved.rename(linked)


def test_a_missing_target_is_not_made(node: AgentNode) -> None:
    target = node.target("missing", "pv-1")
    reply = node.call("mount", str(target), node.options_text("missing", "pv-1"))
    assert "No such file or directory" in reply.message
    assert not target.exists()


# --- options ---

HOSTILE_OPTIONS: list[tuple[dict[str, str], str]] = [
    ({"image": "../state/agent.lock"}, "is not a file name"),
    ({"image": "/etc/shadow"}, "is not a file name"),
    ({"image": "-o"}, "is not a file name"),
    ({"image": "a\0b"}, "is not a file name"),
    ({"image": "x" * 300}, "is not a file name"),
    ({"pool": "/etc"}, "is not configured on this node"),
    ({"pool": "../default"}, "is not configured on this node"),
    ({"name": "../../etc"}, "name"),
    ({"name": "a\0"}, "name"),
    ({"name": "n" * 300}, "name"),
    ({"backend": "shell"}, "is unknown"),
    ({"backend": "../loop"}, "is unknown"),
    ({"size": "-1"}, "size"),
    ({"size": "1Ei"}, "File too large"),
    ({"size": "9" * 400}, "size"),
    ({"kubernetes.io/fsType": "ext4 -o suid"}, "is not supported"),
    ({"kubernetes.io/fsType": "vfat"}, "is not supported"),
    ({"kubernetes.io/readwrite": "rw,suid"}, "is neither ro nor rw"),
    ({"kubernetes.io/fsGroup": "0; rm"}, "is not a group ID"),
    ({"kubernetes.io/fsGroup": "-1"}, "is not a group ID"),
    ({"kubernetes.io/pod.uid": "other-uid"}, "is not the pod UID of the target"),
    ({"kubernetes.io/pvOrVolumeName": "other"}, "is not the last component"),
    ({"kubernetes.io/secret/key": "not base64!"}, "its value is not base64"),
    ({"mountOptions": "bind"}, "is not allowed"),
    ({"mountOptions": "errors=panic"}, "is not allowed"),
    ({"mountOptions": "errors=remount-ro", "backend": "directory"}, "is not allowed for directory"),
    ({"mountOptions": "remount"}, "is not allowed"),
    ({"mountOptions": "context=x"}, "is not allowed"),
    ({"mountOptions": "noatime -o dev"}, "is not allowed"),
    ({"mountOptions": "loop=/dev/vda"}, "is not allowed"),
    ({"mountOptions": "noatime\n"}, "is not allowed"),
    ({"mountOptions": ",".join(["noatime"] * 40)}, "there are more than"),
    ({"accessModes": "All"}, "AccessMode"),
    ({"cluster": "../../x"}, "is not NAMESPACE/NAME"),
    ({"unknown": "x"}, "is unknown to backend"),
    ({"backend": "nfs", "server": "-o", "share": "/a"}, "is invalid"),
    ({"backend": "nfs", "server": "host", "share": "/a/../../b"}, "is invalid"),
    ({"backend": "rbd", "monitors": "a b"}, "is invalid"),
    ({"backend": "rbd", "user": "--conf"}, "is invalid"),
    ({"backend": "nbd", "server": "h", "port": "10 -p"}, "is invalid"),
]


@pytest.mark.parametrize(("options", "problem"), HOSTILE_OPTIONS)
def test_hostile_options_are_refused_by_name(node: AgentNode, options: dict[str, str], problem: str) -> None:
    node.make_target("one", "pv-1")
    text = node.options_text("one", "pv-1", **options)
    answer = ask(node, str(node.target("one", "pv-1")), text)
    assert answer["status"] == "Failure"
    assert problem in answer["message"]
    assert len(answer["message"]) < 2000
    assert not (node.pool / "pv-1").exists()


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"a": 1}', '{"a": null}', "x" * 1000, "[" * 5000])
def test_options_that_are_not_strings_are_refused(node: AgentNode, text: str) -> None:
    answer = ask(node, str(node.target("one", "pv-1")), text)
    assert "no JSON object of strings" in answer["message"]


def test_a_secret_is_in_no_answer_log_or_file(node: AgentNode) -> None:
    node.make_target("one", "pv-secret")
    secret = {"kubernetes.io/secret/key": "aHVudGVyMi1zZWNyZXQ="}
    assert node.mount("one", "pv-secret", **secret).is_success
    assert node.unmount("one", "pv-secret").is_success
    bad = ask(
        node, str(node.target("one", "pv-bad")), node.options_text("one", "pv-bad", image="/", **secret)
    )
    texts = [str(bad), node.agent.log_path.read_text()]
    texts += [one.read_text(errors="replace") for one in node.state.rglob("*") if one.is_file()]
    for text in texts:
        assert "hunter2" not in text
        assert "aHVudGVy" not in text


# --- clients ---

MESSAGES: list[tuple[bytes, int | None, str]] = [
    (b"", 0, "0 bytes"),
    (b"x", 1, "1 bytes"),
    (b"", 0xFFFFFFFF, "at most"),
    (b"{}", None, "no request"),
    (b"null", None, "no request"),
    (b"\xff\xfe{}", None, "no request"),
    (b'{"protocol":99,"driver":"9","call":"mount"}', None, "it has version 99, and the agent 1"),
    (b'{"protocol":1,"driver":"0","call":"mount","arguments":["a"]}', None, "1 arguments"),
    (b'{"protocol":1,"driver":"0","call":"mount","arguments":["a","b","c"]}', None, "3 arguments"),
    (b'{"protocol":1,"driver":"0","call":"mount","arguments":[1,2]}', None, "no request"),
    (b'{"protocol":1,"driver":"0","call":"init","arguments":["x"]}', None, "1 arguments"),
    (b"[" * 200000, None, "no request"),
]


@pytest.mark.parametrize(("text", "length", "problem"), MESSAGES)
def test_a_malformed_message_gets_a_failure(
    node: AgentNode, text: bytes, length: int | None, problem: str
) -> None:
    answer = send(node, text, length=length)
    assert answer["status"] == "Failure"
    assert problem in answer["message"]


def test_an_unknown_call_is_not_supported(node: AgentNode) -> None:
    assert ask(node, call="expandfs") == {"status": "Not supported"}
    assert node.call("attach", "{}", "n1") == Reply(status="Not supported")
    assert node.call() == Reply(status="Not supported")
    wrong = node.call("mount", "only-one")
    assert not wrong.is_success
    assert "call mount takes 2 arguments, and 1 were given" in wrong.message


@pytest.mark.usefixtures("still_mounts")
def test_clients_that_send_nothing_do_not_delay_others(node: AgentNode) -> None:
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connect(node))
            half = stack.enter_context(connect(node))
            half.sendall(b"\0\0\1")
        assert node.mount("one", "pv-quiet").is_success
        assert node.unmount("one", "pv-quiet").is_success


@pytest.mark.usefixtures("still_mounts")
def test_clients_above_the_limit_are_refused_and_served_later(node: AgentNode) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(node)) for _ in range(MAX_CONNECTIONS)]
        reply = node.call("init")
        assert not reply.is_success
        assert f"serves {MAX_CONNECTIONS} calls already; repeat the call" in reply.message
        assert len(idle) == MAX_CONNECTIONS
    block_until(lambda: node.call("init").is_success)


def test_a_driver_that_is_killed_at_any_moment_leaves_a_mount_that_a_repeated_call_completes(
    node: AgentNode,
) -> None:
    for number in range(8):
        name = f"pv-killed-{number}"
        node.make_target("one", name)
        begun = node.begin("mount", str(node.target("one", name)), node.options_text("one", name))
        at = number * 0.01  # from the start of the interpreter to the end of the call
        try:
            begun.wait(at)
        except subprocess.TimeoutExpired:
            begun.send_signal(signal.SIGKILL)
        begun.communicate()
        assert node.mount("one", name).is_success
        assert node.mounts().count(str(node.target("one", name))) == 1
        begun = node.begin("unmount", str(node.target("one", name)))
        try:
            begun.wait(at)
        except subprocess.TimeoutExpired:
            begun.send_signal(signal.SIGKILL)
        begun.communicate()
        assert node.unmount("one", name).is_success


# --- users and other agents ---


def test_the_socket_is_private(node: AgentNode) -> None:
    assert stat.S_IMODE(node.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(node.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(node.state.stat().st_mode) == 0o700


def test_another_user_does_not_reach_the_socket(node: AgentNode) -> None:
    with node.driver.open("rb") as file:  # the test's directory is private, too
        command = ["/usr/bin/python3", "-I", "-S", f"/dev/fd/{file.fileno()}", "init"]
        done = subprocess.run(
            command, user=NOBODY, group=NOBODY, pass_fds=[file.fileno()], capture_output=True, check=False
        )
    assert done.returncode == 1
    message = json.loads(done.stdout)["message"]
    assert f"{node.socket}: Permission denied" in message


def test_another_user_that_reaches_the_socket_is_refused_by_its_credentials(node: AgentNode) -> None:
    """The modes are opened for the test; the agent asks the kernel for the user of each connection."""
    source = (
        "import socket, sys\n"
        "one = socket.socket(socket.AF_UNIX)\n"
        "one.connect(f'/proc/self/fd/{sys.argv[1]}/agent.sock')\n"
        "print(one.recv(1000)[4:].decode())\n"
    )
    descriptor = os.open(node.socket.parent, os.O_PATH)
    node.socket.parent.chmod(0o755)
    node.socket.chmod(0o666)
    try:
        done = subprocess.run(
            ["/usr/bin/python3", "-I", "-S", "-c", source, str(descriptor)],
            user=NOBODY,
            group=NOBODY,
            pass_fds=[descriptor],
            capture_output=True,
            check=True,
        )
    finally:
        os.close(descriptor)
        node.socket.parent.chmod(0o700)
        node.socket.chmod(0o600)
    answer = json.loads(done.stdout)
    assert answer == {"status": "Failure", "message": "only root may call the storage agent"}


def test_a_socket_that_another_user_serves_is_not_used(node: AgentNode, tmp_path: Path) -> None:
    """A copy of the driver, with a socket of another user beside it."""
    (tmp_path / ".agent").mkdir()
    driver = tmp_path / "storage"
    driver.write_bytes(node.driver.read_bytes())
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / program.SOCKET))
    process = os.fork()
    if not process:  # the credentials are those of the process that calls listen
        os.setuid(NOBODY)
        listening.listen()
        signal.pause()
    try:
        block_until(lambda: "Connection refused" not in _init(driver).message)
        reply = _init(driver)
        assert f"user {NOBODY} serves the socket, and not root" in reply.message
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        listening.close()


@pytest.mark.usefixtures("still_mounts")
def test_a_second_agent_is_refused_and_harms_nothing(node: AgentNode) -> None:
    for options in ([], ["--state-dir", str(node.directory / "other-state")]):
        command = [*node.agent.argv, *options]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert done.returncode == 1
        assert f"another storage agent, PID {node.agent.pid} (" in done.stderr.decode()
        assert node.call("init").is_success


@pytest.mark.usefixtures("still_mounts")
def test_a_stale_socket_is_replaced_and_a_missing_agent_is_named(node: AgentNode) -> None:
    node.kill()
    assert node.socket.exists()
    reply = node.call("init")
    assert not reply.is_success
    assert re.search(
        rf"the storage agent does not answer at {re.escape(str(node.socket))}: Connection refused; "
        "start 'kubeletx-flexvolume agent' on this node, or see its log",
        reply.message,
    )
    node.start()
    node.stop()
    assert not node.socket.exists()
    assert f"{node.socket}: No such file or directory" in node.call("init").message
    node.start()


def _init(driver: Path) -> Reply:
    command = ["/usr/bin/python3", "-I", "-S", str(driver), "init"]
    return finished(subprocess.Popen(command, stdout=subprocess.PIPE))
