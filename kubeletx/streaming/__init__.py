"""Public: streams of exec, attach and port-forward: SPDY/3.1, WebSocket, and a byte proxy.

The WebSocket parts (`websocket`) need aiohttp and are imported from their own module, so that a daemon without streams
does not load it.
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
