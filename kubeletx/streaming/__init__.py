"""Public: the streaming protocols of exec, attach and port-forward: SPDY/3.1, WebSocket, and a byte proxy.

Import the WebSocket functions from the module `websocket`: it needs aiohttp, which this package does not import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .status import encode_error, encode_exit, exit_code_of

if TYPE_CHECKING:
    from .remote_client import SpdySession, open_port_forward, open_session

__all__ = [
    "SpdySession",
    "encode_error",
    "encode_exit",
    "exit_code_of",
    "open_port_forward",
    "open_session",
]


def __getattr__(name: str) -> object:
    """Import the SPDY client at its first use: a command that uses only WebSocket is quicker without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.remote_client"), name)
