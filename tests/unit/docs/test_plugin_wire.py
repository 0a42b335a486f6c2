"""The page of the wire format: its examples are read by the code, and its tables name what the code has."""

from __future__ import annotations

import re
from typing import get_args

import msgspec

from kubeletx.api import Endpoint, NotFound
from kubeletx.runtimes.isolation import handshake, wire
from kubeletx.runtimes.isolation.codec import CODECS, JSON
from kubeletx.runtimes.isolation.control import CONTROL, EVENTS, LOG, NETWORK, RUNTIME, Control, Init, Opened
from tests.unit.docs.pages import DOCS, first_words, named_blocks, section

PAGE = (DOCS / "plugin-wire.md").read_text()
BLOCKS = named_blocks(PAGE)


def test_the_first_message_on_the_page_is_what_the_agent_sends() -> None:
    (text,) = BLOCKS["hello"]
    assert msgspec.json.decode(text, type=handshake.Hello) == handshake.Hello()
    assert set(msgspec.json.decode(text)) == set(handshake.Hello.__struct_fields__)


def test_the_replies_on_the_page_are_taken_and_refused() -> None:
    taken, refused = (msgspec.json.decode(text, type=handshake.HelloReply) for text in BLOCKS["hello-reply"])
    assert handshake.agreed("x", taken).codec is JSON
    assert "needs version 2" in refused.refused


def test_every_frame_has_an_example_that_is_read_and_written_alike() -> None:
    read = [JSON.read_frame(text.encode()) for text in BLOCKS["frame"]]
    for frame, text in zip(read, BLOCKS["frame"], strict=True):
        assert msgspec.json.decode(JSON.write_frame(frame)) == msgspec.json.decode(text)
    kinds = {type(frame) for frame in read}
    assert kinds == set(get_args(wire.Frame))
    (failure,) = [frame for frame in read if isinstance(frame, wire.Failure)]
    assert type(wire.error_of(failure)) is NotFound


def test_the_table_of_frames_has_their_fields() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (id[^|]*|target[^|]*) \|", PAGE, re.MULTILINE))
    names = {"args": "arguments"}
    for frame in (wire.Call, wire.Answer, wire.Failure, wire.Item, wire.Credit, wire.Cancel, wire.Note):
        fields = [names.get(field, field) for field in frame.__struct_fields__]
        assert rows[str(frame.__struct_config__.tag)].split(", ") == fields


def test_the_calls_of_the_page_have_the_types_of_the_code() -> None:
    (init,), (opened,) = BLOCKS["init"], BLOCKS["opened"]
    sent = msgspec.json.decode(init, type=Init)
    assert isinstance(sent.endpoint, Endpoint)
    assert set(msgspec.json.decode(init)) == set(Init.__struct_fields__)
    assert msgspec.json.decode(opened, type=Opened).capabilities == ("SupportsEvents",)


def test_limits_encodings_features_and_targets_are_those_of_the_code() -> None:
    for number in (handshake.LARGEST_HELLO, wire.LARGEST_FRAME, wire.MOST_CALLS, wire.WINDOW):
        assert str(number) in PAGE, number
    assert f"Version {handshake.VERSION}." in PAGE
    assert f"within {handshake.HELLO_SECONDS:g} seconds" in PAGE
    assert all(f'"{name}"' in PAGE for name in CODECS)
    assert handshake.CANCEL in first_words(section(PAGE, "Handshake") + PAGE)
    targets = first_words(section(PAGE, "Objects"))
    assert {CONTROL, RUNTIME, NETWORK, EVENTS, LOG} <= set(targets)
    for name in wire.signatures(Control):
        assert f"`{name}`" in PAGE
