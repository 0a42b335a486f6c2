"""The agent's log."""

from __future__ import annotations

import contextlib
import io
import json
import logging
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
