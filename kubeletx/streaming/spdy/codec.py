"""Converts SPDY/3.1 frames to bytes (`Encoder`) and back (`Decoder`), without I/O. A connection needs one of each.

Layout: a data frame is the bit 0, stream id (31 bits), flags (8), length (24), data. A control frame is the bit 1,
version 3 (15 bits), type (16), flags (8), length (24), payload. Header blocks are compressed with zlib; each direction
has one compression context for the whole connection. So frames must be encoded in the order in which they are sent, and
every received header block must be decoded, even if its stream is ignored.
"""

from __future__ import annotations

import struct
import zlib

from kubeletx.api import KubeletxError

from .frames import (
    Data,
    Frame,
    GoAway,
    HeaderList,
    Headers,
    Ping,
    RstStream,
    Settings,
    SynReply,
    SynStream,
    Unknown,
    WindowUpdate,
)

_SINGLE = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges "
    "age allow authorization cache-control connection content-base content-encoding content-language "
    "content-length content-location content-md5 content-range content-type date etag expect expires from "
    "host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location "
    "max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status"
)
_WORDS = (
    *_SINGLE.split(" "),
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
)

_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)

DICTIONARY = b"".join(len(word).to_bytes(4, "big") + word.encode() for word in _WORDS) + _TEXT.encode()
"""Preset zlib dictionary of the header compression: words, each with its length in four bytes, then text (draft 3, 2.6.10.1).

Every compressed stream begins with its Adler-32 checksum, 0xe3c6a7c2.
"""

VERSION = 3
FLAG_FIN = 0x01
FLAG_UNIDIRECTIONAL = 0x02
MAX_CONTROL_BYTES = 1 << 16
"""Maximum length of a received control frame; a longer one raises `SpdyError`."""
MAX_HEADER_BYTES = 1 << 14
"""Maximum length of a received header block after decompression; a longer one raises `SpdyError`."""
MAX_HEADERS = 100

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS = 1, 2, 3, 4
PING, GOAWAY, HEADERS, WINDOW_UPDATE = 6, 7, 8, 9

_ID_MASK = 0x7FFFFFFF


class SpdyError(KubeletxError):
    """The other side violated the SPDY protocol; the connection cannot continue."""


class Encoder:
    """Converts frames to bytes, for one direction of a connection.

    Encode the frames in the order in which they are sent, since their headers share one compression context.
    """

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zdict=DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        """Convert one frame to bytes. Headers change the compression context for the frames that follow."""
        match frame:
            case Data():
                flags = FLAG_FIN if frame.fin else 0
                return struct.pack(">II", frame.stream_id, flags << 24 | len(frame.data)) + frame.data
            case SynStream():
                flags = frame.fin * FLAG_FIN | frame.unidirectional * FLAG_UNIDIRECTIONAL
                head = struct.pack(">IIBB", frame.stream_id, frame.associated_id, frame.priority << 5, 0)
                return _control(SYN_STREAM, flags, head + self._block(frame.headers))
            case SynReply():
                payload = struct.pack(">I", frame.stream_id) + self._block(frame.headers)
                return _control(SYN_REPLY, frame.fin * FLAG_FIN, payload)
            case Headers():
                payload = struct.pack(">I", frame.stream_id) + self._block(frame.headers)
                return _control(HEADERS, frame.fin * FLAG_FIN, payload)
            case RstStream():
                return _control(RST_STREAM, 0, struct.pack(">II", frame.stream_id, frame.status))
            case Settings():
                pairs = b"".join(struct.pack(">II", key, value) for key, value in frame.values)
                return _control(SETTINGS, 0, struct.pack(">I", len(frame.values)) + pairs)
            case Ping():
                return _control(PING, 0, struct.pack(">I", frame.ping_id))
            case GoAway():
                return _control(GOAWAY, 0, struct.pack(">II", frame.last_stream_id, frame.status))
            case WindowUpdate():
                return _control(WINDOW_UPDATE, 0, struct.pack(">II", frame.stream_id, frame.delta))
            case Unknown():
                return _control(frame.type, frame.flags, frame.payload)

    def _block(self, headers: HeaderList) -> bytes:
        parts = [struct.pack(">I", len(headers))]
        for text in (text for pair in headers for text in pair):
            data = text.encode()
            parts += (struct.pack(">I", len(data)), data)
        return self._zlib.compress(b"".join(parts)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


class Decoder:
    """Converts the received bytes of one direction of a connection to frames."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes, and return the frames that are now complete, in order. Incomplete frames are kept.

        Raises SpdyError if the bytes are not SPDY/3.1, or exceed one of the limits of this module.
        """
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        while len(self._buffer) - start >= 8:
            first, second = struct.unpack_from(">II", self._buffer, start)
            length = second & 0xFFFFFF
            if first >> 31 and length > MAX_CONTROL_BYTES:
                raise SpdyError(f"control frame of {length} bytes; at most {MAX_CONTROL_BYTES} are accepted")
            end = start + 8 + length
            if len(self._buffer) < end:
                break
            frames.append(self._decode(first, second >> 24, bytes(self._buffer[start + 8 : end])))
            start = end
        del self._buffer[:start]
        return frames

    def _decode(self, first: int, flags: int, payload: bytes) -> Frame:
        fin = bool(flags & FLAG_FIN)
        if not first >> 31:
            return Data(stream_id=first, data=payload, fin=fin)
        version, type_ = first >> 16 & 0x7FFF, first & 0xFFFF
        if version != VERSION:
            raise SpdyError(f"control frame of SPDY version {version}; only {VERSION} is spoken here")
        try:
            return self._control(type_, flags, fin, payload)
        except struct.error as error:
            raise SpdyError(f"control frame of type {type_} is too short") from error

    def _control(self, type_: int, flags: int, fin: bool, payload: bytes) -> Frame:
        match type_:
            case 1:
                stream_id, associated_id, priority, _slot = struct.unpack_from(">IIBB", payload)
                return SynStream(
                    stream_id=stream_id & _ID_MASK,
                    associated_id=associated_id & _ID_MASK,
                    priority=priority >> 5,
                    headers=self._headers(payload[10:]),
                    fin=fin,
                    unidirectional=bool(flags & FLAG_UNIDIRECTIONAL),
                )
            case 2:
                (stream_id,) = struct.unpack_from(">I", payload)
                return SynReply(stream_id=stream_id & _ID_MASK, headers=self._headers(payload[4:]), fin=fin)
            case 3:
                stream_id, status = struct.unpack_from(">II", payload)
                return RstStream(stream_id=stream_id & _ID_MASK, status=status)
            case 4:
                (count,) = struct.unpack_from(">I", payload)
                if len(payload) != 4 + 8 * count:
                    raise SpdyError(f"SETTINGS of {count} entries in {len(payload)} bytes")
                pairs = struct.iter_unpack(">II", payload[4:])
                return Settings(values=tuple((key & 0xFFFFFF, value) for key, value in pairs))
            case 6:
                return Ping(ping_id=struct.unpack_from(">I", payload)[0])
            case 7:
                last, status = struct.unpack_from(">II", payload)
                return GoAway(last_stream_id=last & _ID_MASK, status=status)
            case 8:
                (stream_id,) = struct.unpack_from(">I", payload)
                return Headers(stream_id=stream_id & _ID_MASK, headers=self._headers(payload[4:]), fin=fin)
            case 9:
                stream_id, delta = struct.unpack_from(">II", payload)
                return WindowUpdate(stream_id=stream_id & _ID_MASK, delta=delta & _ID_MASK)
        return Unknown(type=type_, flags=flags, payload=payload)

    def _headers(self, block: bytes) -> HeaderList:
        try:
            plain = self._zlib.decompress(block, MAX_HEADER_BYTES)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be decompressed: {error}") from error
        if self._zlib.unconsumed_tail:
            raise SpdyError(f"headers of more than {MAX_HEADER_BYTES} bytes")
        try:
            return _parse_headers(plain)
        except (IndexError, UnicodeDecodeError) as error:
            raise SpdyError("headers are malformed") from error


def _control(type_: int, flags: int, payload: bytes) -> bytes:
    return struct.pack(">HHI", 0x8000 | VERSION, type_, flags << 24 | len(payload)) + payload


def _parse_headers(plain: bytes) -> HeaderList:
    (count,) = struct.unpack_from(">I", plain)
    if count > MAX_HEADERS:
        raise SpdyError(f"{count} headers; at most {MAX_HEADERS} are accepted")
    texts: list[str] = []
    at = 4
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", plain, at)
        if at + 4 + length > len(plain):
            raise IndexError(at)
        texts.append(plain[at + 4 : at + 4 + length].decode())
        at += 4 + length
    return tuple(zip(texts[::2], texts[1::2], strict=True))
