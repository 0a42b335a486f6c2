"""Looking for well-known sockets."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kubeletx.api import Unavailable
from kubeletx.runtimes.endpoints.discover import describe, discover


def test_sockets_are_found_in_order_and_it_is_reported_who_listens(tmp_path: Path) -> None:
    listening, dead = tmp_path / "a.sock", tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as left_over:
        server.bind(str(listening))
        server.listen()
        left_over.bind(str(dead))
        found = discover([("x", str(dead)), ("none", str(tmp_path / "no")), ("y", str(listening))])
    assert [(f.name, f.listens) for f in found] == [("x", False), ("y", True)]
    assert found[1].item == f"container:y:unix://{listening}"
    assert "nothing listens" in describe(found)


def test_nothing_found_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no socket")
    with pytest.raises(Unavailable, match="--container-runtime-endpoint: not given"):
        discover([("x", str(tmp_path / "file"))])
