"""Messages of the WebSocket subprotocols of remote commands (exec and attach). No I/O.

Each message begins with the number of its channel (`kubeletx.api.Channel`): one byte, or one digit in the base64
variants, whose messages are text. In v4 and later the server reports the result of the command as a Status object on
the error channel; in older versions as plain text. Only v5 can half-close a channel: a message on channel 255 has the
number of the channel that ends. Source: Kubernetes remotecommand and wsstream.
"""

from __future__ import annotations

import base64
import binascii
import enum

import msgspec

from kubeletx.api import KubeletxError

CLOSE_CHANNEL = 255


class WsProtocol(enum.Enum):
    """WebSocket subprotocols of remote commands (exec and attach), in a server's order of preference."""

    V5 = "v5.channel.k8s.io"
    V4 = "v4.channel.k8s.io"
    V4_BASE64 = "v4.base64.channel.k8s.io"
    V1 = "channel.k8s.io"
    V1_BASE64 = "base64.channel.k8s.io"

    @property
    def is_base64(self) -> bool:
        """True if each message is text: a digit for the channel, then the data in base64."""
        return self in (WsProtocol.V4_BASE64, WsProtocol.V1_BASE64)

    @property
    def has_status(self) -> bool:
        """True if the result of the command is sent as a Status object on the error channel; else as plain text."""
        return self not in (WsProtocol.V1, WsProtocol.V1_BASE64)

    @property
    def can_half_close(self) -> bool:
        """True if the client can send the end of stdin while output continues."""
        return self is WsProtocol.V5


PROTOCOLS: tuple[str, ...] = tuple(protocol.value for protocol in WsProtocol)
"""Names of the subprotocols that a server offers, in order of preference."""


class TerminalSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a terminal in character cells: the JSON data of a message on the resize channel."""

    width: int = msgspec.field(name="Width", default=0)
    height: int = msgspec.field(name="Height", default=0)


def encode_message(protocol: WsProtocol, channel: int, data: bytes) -> bytes | str:
    """Encode `data` as one message on the channel. The result is bytes for a binary message, str for a text message."""
    if protocol.is_base64:
        return f"{channel}{base64.b64encode(data).decode()}"
    return bytes((channel,)) + data


def decode_message(protocol: WsProtocol, message: bytes | str) -> tuple[int, bytes]:
    """Decode a message to (channel, data). Raises KubeletxError if it is empty or malformed."""
    if not message:
        raise KubeletxError(
            f"message of {protocol.value}: it is empty; begin it with the number of a channel"
        )
    if not protocol.is_base64:
        raw = message.encode() if isinstance(message, str) else message
        return raw[0], raw[1:]
    text = message if isinstance(message, str) else message.decode("ascii", errors="replace")
    try:
        return int(text[0]), base64.b64decode(text[1:], validate=True)
    except (ValueError, binascii.Error) as error:
        raise KubeletxError(
            f"message of {protocol.value}, channel {text[0]!r}: {error}; send a digit, then the data in base64"
        ) from error


def encode_resize(width: int, height: int) -> bytes:
    """Encode a terminal size, in character cells, as the data of a message on the resize channel."""
    return msgspec.json.encode(TerminalSize(width=width, height=height))


def decode_resize(data: bytes) -> TerminalSize | None:
    """Decode the data of a message on the resize channel to a terminal size; None if it is invalid."""
    try:
        size = msgspec.json.decode(data, type=TerminalSize)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return size if size.width > 0 and size.height > 0 else None
