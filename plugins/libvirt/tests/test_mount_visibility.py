"""Who answers on libvirt's socket, and whether he sees what the agent shares."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubeletx_libvirt.mount_visibility import check_visibility, find_daemon, socket_of
from kubeletx_libvirt.shares import Share, ShareKind

from kubeletx.api import Conflict, Unavailable

PID = 4242


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that is to be shared."""
    path = tmp_path / "volume"
    path.mkdir()
    return path


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc where the process sees the node's root as its own."""
    path = tmp_path / "proc"
    (path / str(PID)).mkdir(parents=True)
    (path / str(PID) / "root").symlink_to("/")
    return path


def share(place: Path, *, read_only: bool = False, file: str = "") -> Share:
    return Share(
        volume="cfg",
        tag="kx1",
        kind=ShareKind.VIRTIOFS,
        origin=str(place),
        directory=str(place),
        target="/config",
        read_only=read_only,
        file=file,
    )


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("qemu:///system", "libvirt-sock"),
        ("qemu+unix:///system", "libvirt-sock"),
        ("qemu:///system?mode=direct", "virtqemud-sock"),
        ("qemu+unix:///system?socket=/srv/own-sock", "/srv/own-sock"),
        ("qemu:///session", None),
        ("qemu:///embed?root=/x", None),
        ("qemu+tcp://127.0.0.1/system", None),
        ("qemu+ssh://localhost/system", None),
        ("test:///default", None),
    ],
)
def test_the_socket_is_the_one_that_libvirt_takes(url: str, path: str | None, tmp_path: Path) -> None:
    assert socket_of(url, tmp_path) == (tmp_path / path if path else None)


def test_the_drivers_own_daemon_goes_before_the_old_one_unless_the_url_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "virtqemud-sock").touch()
    assert socket_of("qemu:///system", tmp_path) == tmp_path / "virtqemud-sock"
    assert socket_of("qemu:///system?mode=legacy", tmp_path) == tmp_path / "libvirt-sock"


ANSWERER = """
import socket, struct, sys
print(flush=True)
connection, _ = socket.socket(fileno=int(sys.argv[1])).accept()
asked = struct.unpack(">7I", connection.recv(28))
connection.sendall(struct.pack(">7I2I", 36, *asked[1:4], 1, *asked[5:], 1, 0))
connection.recv(28)
"""


class Answering:
    """A socket made here on which another process answers, as with socket activation."""

    def __init__(self, path: Path, program: str = ANSWERER) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
            made.listen()
            number = made.fileno()
            command = [sys.executable, "-c", program, str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number], stdout=subprocess.PIPE)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        with self._process.stdout as said:
            said.readline()  # it is there: what is asked of it now is answered soon

    def close(self) -> None:
        assert self._process.wait(60) == 0


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    one = Answering(tmp_path / "s")
    yield one
    one.close()


def test_the_process_that_answers_is_found_not_the_one_that_made_the_socket(
    answering: Answering, tmp_path: Path
) -> None:
    assert find_daemon(tmp_path / "s") == answering.pid


def test_a_socket_that_is_not_there_reports_nothing(tmp_path: Path) -> None:
    assert find_daemon(tmp_path / "none") is None


def test_a_proxy_is_not_taken_for_the_one_who_starts_emulators(tmp_path: Path) -> None:
    proxy, driver = Answering(tmp_path / "libvirt-sock"), Answering(tmp_path / "virtqemud-sock")
    proc = tmp_path / "proc" / str(proxy.pid)
    proc.mkdir(parents=True)
    (proc / "comm").write_text("virtproxyd\n")
    assert find_daemon(tmp_path / "libvirt-sock", proc.parent) == driver.pid
    proxy.close()
    driver.close()


def test_no_answer_is_not_a_reason_to_go_on(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(Unavailable, match=r"socket .*/s gives no answer"):
            find_daemon(tmp_path / "s", seconds=0.01)


def test_one_who_lets_no_one_take_leave_before_a_login_is_found_all_the_same(
    tmp_path: Path,
) -> None:
    one = Answering(tmp_path / "s", ANSWERER + "while connection.recv(28): pass")
    assert find_daemon(tmp_path / "s", seconds=2.0) == one.pid
    one.close()


def test_what_is_seen_as_it_is_here_is_shared(place: Path, proc: Path) -> None:
    (place / "one").touch()
    check_visibility([share(place), share(place, file="one")], PID, proc)


def test_another_directory_in_the_place_of_a_volume_is_refused_with_its_name_and_the_cure(
    place: Path, proc: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (proc / str(PID) / "root").unlink()
    (proc / str(PID) / "root").symlink_to(other)
    Path(f"{other}{place}").mkdir(parents=True)
    with pytest.raises(Conflict) as refused:
        check_visibility([share(place)], PID, proc)
    words = str(refused.value)
    assert f"volume cfg at /config: in the place of {place} libvirtd (process {PID}) has " in words
    assert "something else" in words
    assert "PrivateMounts=no" in words
    Path(f"{other}{place}").rmdir()
    with pytest.raises(Conflict, match="has nothing"):
        check_visibility([share(place)], PID, proc)


def test_a_read_only_volume_that_could_be_written_to_is_refused(place: Path, proc: Path) -> None:
    with pytest.raises(Conflict, match="could write to; delete the pod"):
        check_visibility([share(place, read_only=True)], PID, proc)


def test_a_volume_that_is_gone_is_named(place: Path, proc: Path) -> None:
    place.rmdir()
    with pytest.raises(Unavailable, match=f"volume cfg at /config: {place} does not exist; create it"):
        check_visibility([share(place)], PID, proc)


def test_where_no_one_may_look_nothing_is_refused(place: Path, tmp_path: Path) -> None:
    check_visibility([share(place)], PID, tmp_path / "no-such-proc")


def test_a_volume_that_cannot_be_looked_at_is_left_to_libvirt(place: Path, proc: Path) -> None:
    place.rmdir()
    place.symlink_to(place)
    check_visibility([share(place)], PID, proc)
