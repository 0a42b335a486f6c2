"""`Codec`: encodes frames, and the arguments and results in them, as msgpack or JSON; see docs/plugin-wire.md.

The handshake chooses the encoding: children in Python use msgpack, small programs in other languages may use JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from kubeletx.api import Internal

from .wire import Frame


class Codec:
    """One encoding of the wire format. `name`: its name in the handshake, msgpack or json."""

    def __init__(self, name: str, module: ModuleType) -> None:
        """`module`: module of msgspec that has the encoder and the decoder."""
        self.name = name
        self.read_frame = module.Decoder(Frame).decode
        self.write_frame = module.Encoder().encode
        self._encode = module.Encoder(enc_hook=_plain).encode
        self._decode = module.decode

    def encode(self, value: Any) -> msgspec.Raw:
        return msgspec.Raw(self._encode(value))

    def decode(self, data: msgspec.Raw, type_: Any) -> Any:
        """Decode a value of type `type_`. Raises Internal if the other process sent something else."""
        try:
            return self._decode(data, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Internal(f"the plugin's process did not send {type_}: {error}") from error


class Encoded:
    """Arguments of a received call or one-way message, not decoded yet: the called method has their types."""

    __slots__ = ("_codec", "_data")

    def __init__(self, codec: Codec, data: msgspec.Raw) -> None:
        self._codec = codec
        self._data = data

    def decode(self, type_: Any) -> Any:
        """Decode the arguments as `type_`, a tuple type. Raises Internal if they are something else."""
        return self._codec.decode(self._data, type_)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Path):
        return str(value)
    # msgspec expects this error from a hook that does not support a type.
    raise NotImplementedError(f"{type(value).__name__} is not a contract value")


MSGPACK: Final = Codec("msgpack", msgspec.msgpack)
JSON: Final = Codec("json", msgspec.json)
CODECS: Final = {codec.name: codec for codec in (MSGPACK, JSON)}
"""Encodings by name; the first is the agent's preference."""
