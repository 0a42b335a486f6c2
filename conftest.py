"""For all tests: collecting without the garbage collector, which would walk the growing tree of tests many times; SIGINT."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and programs of tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Take the collected tests, which live until the end, out of all later collections too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
