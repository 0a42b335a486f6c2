import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.streaming.spdy import (
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Headers,
    Ping,
    RstStream,
    Settings,
    SpdyError,
    SynReply,
    SynStream,
    Unknown,
    WindowUpdate,
)
from kubeletx.streaming.spdy.codec import DICTIONARY, MAX_CONTROL_BYTES

ids = st.integers(1, 2**31 - 1)
words = st.integers(0, 2**32 - 1)
header_lists = st.lists(st.tuples(st.text(max_size=20), st.text(max_size=50)), max_size=5).map(tuple)
frames = st.one_of(
    st.builds(
        SynStream,
        stream_id=ids,
        headers=header_lists,
        fin=st.booleans(),
        unidirectional=st.booleans(),
        associated_id=ids,
        priority=st.integers(0, 7),
    ),
    st.builds(SynReply, stream_id=ids, headers=header_lists, fin=st.booleans()),
    st.builds(Headers, stream_id=ids, headers=header_lists, fin=st.booleans()),
    st.builds(Data, stream_id=ids, data=st.binary(max_size=300), fin=st.booleans()),
    st.builds(RstStream, stream_id=ids, status=words),
    st.builds(Settings, values=st.lists(st.tuples(st.integers(0, 2**24 - 1), words), max_size=4).map(tuple)),
    st.builds(Ping, ping_id=words),
    st.builds(GoAway, last_stream_id=ids, status=words),
    st.builds(WindowUpdate, stream_id=ids, delta=ids),
    st.builds(
        Unknown, type=st.integers(10, 2**16 - 1), flags=st.integers(0, 255), payload=st.binary(max_size=50)
    ),
)


@given(st.lists(frames, max_size=8), st.data())
def test_frames_survive_any_split_of_their_bytes(sent: list[Frame], data: st.DataObject) -> None:
    encoder, decoder = Encoder(), Decoder()
    stream = b"".join(encoder.encode(frame) for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    received: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent


@given(st.binary(max_size=400))
def test_any_bytes_give_frames_or_a_spdy_error(junk: bytes) -> None:
    try:
        Decoder().feed(junk)
    except SpdyError:
        pass


@given(st.binary(max_size=100), st.sampled_from([1, 2, 3, 4, 6, 7, 8, 9]))
def test_any_control_payload_gives_a_frame_or_a_spdy_error(payload: bytes, type_: int) -> None:
    try:
        Decoder().feed(struct.pack(">HHI", 0x8003, type_, len(payload)) + payload)
    except SpdyError:
        pass


def test_the_dictionary_is_the_one_of_the_protocol() -> None:
    assert len(DICTIONARY) == 1423
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


def test_a_stream_opens_with_the_bytes_the_protocol_needs() -> None:
    data = Encoder().encode(SynStream(stream_id=1, headers=(("streamtype", "error"),)))
    assert data[:4] == b"\x80\x03\x00\x01"
    assert data[4] == 0
    assert data[8:12] == b"\x00\x00\x00\x01"
    assert data[18:24][2:] == b"\xe3\xc6\xa7\xc2"


def test_another_version_is_refused() -> None:
    with pytest.raises(SpdyError, match="version 2"):
        Decoder().feed(b"\x80\x02\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01")


def test_headers_that_expand_without_end_are_refused() -> None:
    bomb = zlib.compressobj(zdict=DICTIONARY)
    block = bomb.compress(bytes(50 * MAX_CONTROL_BYTES)) + bomb.flush(zlib.Z_SYNC_FLUSH)
    frame = struct.pack(">HHII", 0x8003, 2, len(block) + 4, 1) + block
    with pytest.raises(SpdyError, match="more than"):
        Decoder().feed(frame)


def test_an_overlong_control_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(SpdyError, match="control frame of"):
        Decoder().feed(struct.pack(">HHI", 0x8003, 2, MAX_CONTROL_BYTES + 1))
