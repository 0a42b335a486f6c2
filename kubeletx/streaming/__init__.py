"""Public: the streaming protocols of exec, attach and port-forward: SPDY/3.1, WebSocket, and a byte proxy.

Import the WebSocket functions from the module `websocket`: it needs aiohttp, which this package does not import.
"""

from .remote_client import SpdySession, open_port_forward, open_session
from .status import encode_error, encode_exit, exit_code_of

__all__ = [
    "SpdySession",
    "encode_error",
    "encode_exit",
    "exit_code_of",
    "open_port_forward",
    "open_session",
]
