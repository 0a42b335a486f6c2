"""The WebSocket subprotocols of remote commands, without I/O.

Every message begins with the channel: one byte, or one digit in the base64 variants (text messages). v4 and
later end with a Status on the error channel, older ones with words. Only v5 can half-close: channel 255, then
the channel that ends. Source: Kubernetes remotecommand and wsstream.
"""

from __future__ import annotations

import base64
import binascii
import enum

import msgspec

from kubeletx.api import KubeletxError

CLOSE_CHANNEL = 255


class WsProtocol(enum.Enum):
    """WebSocket subprotocols of remote commands, the one that a server prefers first."""

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
        """True if the error channel carries a Status; else it carries a plain message."""
        return self not in (WsProtocol.V1, WsProtocol.V1_BASE64)

    @property
    def can_half_close(self) -> bool:
        """True if the client can send the end of stdin while output continues."""
        return self is WsProtocol.V5


PROTOCOLS: tuple[str, ...] = tuple(protocol.value for protocol in WsProtocol)
"""Protocols a server offers, best first."""


class TerminalSize(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a terminal in character cells, as the message on the resize channel has it."""

    width: int = msgspec.field(name="Width", default=0)
    height: int = msgspec.field(name="Height", default=0)


def encode_message(protocol: WsProtocol, channel: int, data: bytes) -> bytes | str:
    """Encode one message. The result is bytes for a binary message, str for a text message."""
    if protocol.is_base64:
        return f"{channel}{base64.b64encode(data).decode()}"
    return bytes((channel,)) + data


def decode_message(protocol: WsProtocol, message: bytes | str) -> tuple[int, bytes]:
    """Decode a message to (channel, data). Raises KubeletxError if it has no channel or is not base64."""
    if not message:
        raise KubeletxError("empty message: the channel is missing")
    if not protocol.is_base64:
        raw = message.encode() if isinstance(message, str) else message
        return raw[0], raw[1:]
    text = message if isinstance(message, str) else message.decode("ascii", errors="replace")
    try:
        return int(text[0]), base64.b64decode(text[1:], validate=True)
    except (ValueError, binascii.Error) as error:
        raise KubeletxError(f"malformed message: {error}") from error


def encode_resize(width: int, height: int) -> bytes:
    """Encode the data of a message on the resize channel."""
    return msgspec.json.encode(TerminalSize(width=width, height=height))


def decode_resize(data: bytes) -> TerminalSize | None:
    """Decode the data of a message on the resize channel; None if it is invalid."""
    try:
        size = msgspec.json.decode(data, type=TerminalSize)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return size if size.width > 0 and size.height > 0 else None
