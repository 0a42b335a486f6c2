"""Two nodes with volumes of a real NFS server and a real NBD server, in a guest whose kernel has the clients.

Run by `test_network_storage.py`. The nodes share the kernel, but each has its own agent, mounts and connections.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kubeletx_testing.lab.process import Daemon
from kubeletx_testing.waiting import block_until
from tests.integration.storage.storage_agent import MIB, READ_ONLY, AgentNode, Reply

NFS_PORT, NBD_PORT = 2049, 10809
GANESHA = """
NFS_CORE_PARAM {{ Protocols = 4; NFS_Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}
NFSv4 {{ Graceless = true; UseGetpwnam = true; DomainName = localdomain; Only_Numeric_Owners = true; }}
EXPORT {{ Export_Id = 1; Path = {0}; Pseudo = {0}; Access_Type = RW; Squash = None; SecType = sys; FSAL {{ Name = VFS; }} }}
"""


class Container:
    """A shell with a mount namespace of its own, as a container has it: no unmount of the node reaches its volume."""

    def __init__(self, node: AgentNode, pod: str, name: str) -> None:
        command = node.namespace.command("unshare", "--mount", "--propagation", "private", "sh")
        self._shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.succeeds(f"cd {node.target(pod, name)}")

    def succeeds(self, command: str) -> bool:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{{ {command}; }} && echo yes || echo no\n")
        self._shell.stdin.flush()
        return self._shell.stdout.readline() == "yes\n"

    def writes(self, text: str) -> bool:
        """Append a line to a file of the volume, and return True if it is on the storage."""
        return self.succeeds(f"echo {text} | dd of=log oflag=append conv=notrunc,fsync status=none")

    def end(self) -> None:
        self._shell.kill()
        self._shell.communicate()


def listening(port: int) -> Callable[[], bool]:
    def answers() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    return answers


def start_servers(directory: Path) -> None:
    share, image = directory / "share", directory / "image"
    for one in (share / "data", Path("/var/lib/nfs/ganesha"), Path("/run/ganesha")):
        one.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    (directory / "ganesha.conf").write_text(GANESHA.format(share))
    ganesha = ["ganesha.nfsd", "-F", "-f", str(directory / "ganesha.conf"), "-L", "/dev/stdout"]
    nbd = ["qemu-nbd", "-f", "raw", "-x", "data", "--shared=4", "--persistent", "-b", "::", str(image)]
    for name, argv, port in (("ganesha", ganesha, NFS_PORT), ("qemu-nbd", nbd, NBD_PORT)):
        daemon = Daemon(name=name, argv=argv, directory=directory / "log")
        daemon.start()
        daemon.wait_until(listening(port), what="an open port")


def moves(n1: AgentNode, n2: AgentNode, name: str, options: dict[str, str], *, is_cut_in_use: bool) -> None:
    """A volume moves after its unmount, with its data; and by a broken lock, when its old holder cannot write any more."""
    succeeded(n1.mount("one", name, **options))
    refused = n2.mount("two", name, **options)
    assert "is attached for pod default/one on node n1" in refused.message, refused
    container = Container(n1, "one", name)
    assert container.succeeds("echo from n1 >file")
    if is_cut_in_use:  # what is not written yet would be lost
        assert "is in use" in n1.unmount("one", name).message
    container.end()
    succeeded(n1.unmount("one", name))
    n1.becomes_clean()
    succeeded(n2.mount("two", name, **options, **READ_ONLY))
    assert (n2.inside("two", name) / "file").read_text() == "from n1\n"
    succeeded(n2.mount("three", name, **options))  # the mount of the node becomes writable
    (n2.inside("three", name) / "file").write_text("from n2")
    for pod in ("two", "three"):
        succeeded(n2.unmount(pod, name))
    n2.becomes_clean()
    report(f"{name} has moved")

    succeeded(n1.mount("one", name, **options))
    container = Container(n1, "one", name)
    assert container.writes("before")
    assert container.succeeds("exec 5>>log")
    n1.kill()
    before = n1.agent.log_path.stat().st_size
    release(n1, name)
    n1.agent.start()  # works off its garbage list
    block_until(lambda: b"in use" in n1.agent.log_path.read_bytes()[before:])
    assert container.succeeds("echo still >&5; sync log") is not is_cut_in_use
    assert container.succeeds("exec 5>&-")
    block_until(lambda: not container.writes("still"))
    report(f"{name} is cut off")
    succeeded(n2.mount("two", name, **options))
    assert (n2.inside("two", name) / "file").read_text() == "from n2"
    assert not container.writes("late")
    log = (n2.inside("two", name) / "log").read_text().split()
    assert (log[0], set(log[1:])) == ("before", set() if is_cut_in_use else {"still"}), log
    container.end()
    n1.becomes_clean()
    succeeded(n2.unmount("two", name))
    n2.becomes_clean()
    n1.wait()
    report(f"{name} has failed over")


def succeeded(reply: Reply) -> None:
    assert reply.is_success, reply


def release(node: AgentNode, name: str) -> None:
    """Remove a node's entry as an administrator does who is wrong about the node: it is not off."""
    program = [sys.executable, "-m", "kubeletx_flexvolume.agent.main", "release", name]
    subprocess.run([*program, "--node", node.name, "--records", str(node.records), "--yes"], check=True)


def report(text: str) -> None:
    sys.stdout.write(f"{time.monotonic():.0f} s after the start of the guest: {text}\n")
    sys.stdout.flush()


def main(directory: Path) -> None:
    start_servers(directory)
    report("the servers run")
    records = directory / "records.db"
    n1, n2 = (AgentNode(directory / one, one, records=records, boot_id=f"{one}-boot") for one in ("n1", "n2"))
    for one in (n1, n2):
        one.agent.start()
    for one in (n1, n2):
        one.wait()
    report("the agents run")
    nbd = {"backend": "nbd", "image": "data", "server": "[::1]", "size": ""}
    nfs = {
        "backend": "nfs",
        "image": "data",
        "server": "127.0.0.1",
        "share": str(directory / "share"),
        "size": "",
    }
    for name, options in (("nbd", nbd), ("nfs", nfs)):
        moves(n1, n2, name, options, is_cut_in_use=options is nbd)
    assert list(Path("/sys/block").glob("nbd*/pid")) == []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
