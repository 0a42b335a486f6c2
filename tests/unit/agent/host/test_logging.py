"""The agent's log."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from kubeletx.agent.host.logging import set_up_logging, set_verbosity


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """The log of the other tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def full_disk() -> Iterator[TextIO]:
    file = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 - closing it fails too
    with contextlib.redirect_stderr(file):
        yield file
    with contextlib.suppress(OSError):
        file.close()


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_full_disk_below_the_log_costs_lines_and_nothing_else(full_disk: TextIO, format: str) -> None:
    with pytest.raises(OSError, match="No space left"):
        full_disk.write("proof that nothing can be written\n")
    set_up_logging(format)
    for _ in range(1000):
        structlog.get_logger("kubeletx.test").info("Did something", pod="default/p", text="x" * 100)
    logging.getLogger("a.library").error("went wrong")


def fields_of(entry: bytes) -> dict[str, str]:
    """Decode an entry as journald does."""
    found, rest = {}, entry
    while rest:
        line, _, rest = rest.partition(b"\n")
        name, is_short, value = line.partition(b"=")
        if not is_short:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[9 + size :]
        found[name.decode()] = value.decode()
    return found


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The journal's end of its socket, after the agent has set up its log with standard error connected to it."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
        (tmp_path / "stderr").open("w", buffering=1) as stderr,
    ):
        receiver.bind(str(tmp_path / "socket"))
        receiver.settimeout(60)
        stat = os.fstat(stderr.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{stat.st_dev}:{stat.st_ino}")
        with contextlib.redirect_stderr(stderr):
            set_up_logging("text", journal=tmp_path / "socket")
        yield receiver


def test_a_journal_gets_entries_with_the_fields_of_the_line(journal: socket.socket) -> None:
    log = structlog.get_logger("kubeletx.test")
    log.info(
        "Started container", pod="default/web", pod_uid="u1", container="main", runtime="kvm", message="x"
    )
    assert fields_of(journal.recv(65536)) == {
        "MESSAGE": "Started container pod=default/web pod_uid=u1 container=main runtime=kvm message=x",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "kubeletx",
        "POD_NAMESPACE": "default",
        "POD_NAME": "web",
        "POD_UID": "u1",
        "CONTAINER": "main",
        "RUNTIME": "kvm",
    }
    try:
        raise ValueError("first line\nsecond line")
    except ValueError:
        log.exception("Failed", _2odd="y", elapsed_seconds=0.5)
    found = fields_of(journal.recv(65536))
    assert (found["PRIORITY"], found["ODD"], found["ELAPSED_SECONDS"]) == ("3", "y", "0.5")
    assert "first line\nsecond line" in found["EXCEPTION"]
    assert "first line\nsecond line" in found["MESSAGE"]


def test_a_journal_gets_a_large_entry_as_a_sealed_file(journal: socket.socket) -> None:
    text = "x" * 60_000
    structlog.get_logger("kubeletx.test").warning("Large", **{f"value{n}": text for n in range(10)})
    data, (file,), _, _ = socket.recv_fds(journal, 65536, 1)
    with open(file, "rb") as entry:  # noqa: PTH123 - a descriptor
        assert data == b""
        assert fcntl.fcntl(entry, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
        entry.seek(0)
        found = fields_of(entry.read())
    assert found["PRIORITY"] == "4"
    assert [found[f"VALUE{n}"] for n in range(10)] == [text] * 10


def test_lines_go_to_standard_error_while_the_journal_is_away(journal: socket.socket, tmp_path: Path) -> None:
    log = structlog.get_logger("kubeletx.test")
    Path(journal.getsockname()).unlink()
    log.info("Missed", pod="default/web")
    assert (tmp_path / "stderr").read_text() == "Missed pod=default/web\n"


def test_verbosity_changes_for_loggers_that_are_in_use_already() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as file:
        set_up_logging("json", verbosity=2)
    log = structlog.get_logger("kubeletx.test")
    bound = log.bind(pod="default/p")
    for verbosity in (2, 4, 10, 3):
        set_verbosity(verbosity)
        for one in (log, bound):
            one.info("Told", verbosity=verbosity)
            one.debug("Explained", verbosity=verbosity)
    reported = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [one["verbosity"] for one in reported if one["event"] == "Explained"] == [4, 4, 10, 10]
    assert len([one for one in reported if one["event"] == "Told"]) == 8
