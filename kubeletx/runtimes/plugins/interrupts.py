"""`own_interrupts`: tells an interrupt by the user (SIGINT) from a KeyboardInterrupt that plugin code raises."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def own_interrupts() -> Iterator[None]:
    """Context of calls of plugin code, after which a SIGINT during it raises KeyboardInterrupt, and nothing else does.

    Without a SIGINT, a KeyboardInterrupt is code of the plugin: the caller handles it inside of the context, as any
    other exception. A SIGINT still interrupts the plugin's code at once. In the running agent, whose event loop handles
    SIGINT, and on other threads, there is no KeyboardInterrupt but those of plugins.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if came:
            raise KeyboardInterrupt
