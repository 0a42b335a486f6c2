"""The agent's log."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest
import structlog

from kubeletx.agent.logging import set_up_logging


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[TextIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    file = open("/dev/full", "w", buffering=1)  # noqa: SIM115 - closing it fails too
    monkeypatch.setattr(sys, "stderr", file)
    yield file
    with contextlib.suppress(OSError):
        file.close()
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("format", ["text", "json"])
def test_a_full_disk_below_the_log_costs_lines_and_nothing_else(full_disk: TextIO, format: str) -> None:
    with pytest.raises(OSError, match="No space left"):
        full_disk.write("proof that nothing can be written\n")
    set_up_logging(format)
    for _ in range(1000):
        structlog.get_logger("kubeletx.test").info("Did something", pod="default/p", text="x" * 100)
    logging.getLogger("a.library").error("went wrong")
