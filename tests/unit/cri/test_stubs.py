"""Our stubs speak the same wire format as independently published ones.

Both define package runtime.v1, and a process can hold only one definition of a message, so the
published descriptors are read in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec
from google.protobuf import descriptor_pb2

from kubeletx.cri.stubs import runtime_v1_pb2

PRINT_PUBLISHED = """
import sys
from cri_api.v1 import api_pb2
sys.stdout.buffer.write(api_pb2.DESCRIPTOR.serialized_pb)
"""

RETYPED = {("KeyValue", "value")}
"""string became bytes upstream after the published stubs were made; the bytes on the wire are the same."""


class Shape(msgspec.Struct):
    """A flat view of one .proto file: every name with what the wire sees of it."""

    fields: dict[tuple[str, str], tuple[int, int, int, str]] = {}
    values: dict[tuple[str, str], int] = {}
    calls: dict[tuple[str, str], tuple[str, str, bool, bool]] = {}


def shape_of(file: descriptor_pb2.FileDescriptorProto) -> Shape:
    shape = Shape(fields={}, values={}, calls={})

    def add_enum(prefix: str, enum: descriptor_pb2.EnumDescriptorProto) -> None:
        for value in enum.value:
            shape.values[prefix + enum.name, value.name] = value.number

    def add_message(prefix: str, message: descriptor_pb2.DescriptorProto) -> None:
        name = prefix + message.name
        shape.fields[name, ""] = (0, 0, 0, "")
        for field in message.field:
            shape.fields[name, field.name] = (field.number, field.type, field.label, field.type_name)
        for nested in message.nested_type:
            add_message(name + ".", nested)
        for enum in message.enum_type:
            add_enum(name + ".", enum)

    for message in file.message_type:
        add_message("", message)
    for enum in file.enum_type:
        add_enum("", enum)
    for service in file.service:
        for method in service.method:
            shape.calls[service.name, method.name] = (
                method.input_type,
                method.output_type,
                method.client_streaming,
                method.server_streaming,
            )
    return shape


def published() -> Shape:
    done = subprocess.run([sys.executable, "-c", PRINT_PUBLISHED], capture_output=True, check=True)
    return shape_of(descriptor_pb2.FileDescriptorProto.FromString(done.stdout))


def ours() -> Shape:
    return shape_of(descriptor_pb2.FileDescriptorProto.FromString(runtime_v1_pb2.DESCRIPTOR.serialized_pb))


def test_every_published_field_number_type_and_label_is_ours_too() -> None:
    theirs, mine = published(), ours()
    assert len(theirs.fields) > 500
    different = {
        key: (value, mine.fields.get(key))
        for key, value in theirs.fields.items()
        if mine.fields.get(key) != value
    }
    for key in RETYPED:
        theirs_field, my_field = different.pop(key)
        assert my_field is not None
        assert theirs_field[0] == my_field[0]
        assert (theirs_field[1], my_field[1]) == (
            descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
            descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
        )
    assert different == {}


def test_every_published_enum_value_has_the_same_number() -> None:
    theirs, mine = published(), ours()
    assert len(theirs.values) > 80
    # Names are not on the wire: upstream put SIGNAL_ before the signals after the stubs were made.
    renamed = {
        (enum, f"SIGNAL_{name}" if enum == "Signal" else name): number
        for (enum, name), number in theirs.values.items()
    }
    assert {k: v for k, v in renamed.items() if mine.values.get(k) != v} == {}


def test_every_published_call_has_the_same_messages_and_streams() -> None:
    theirs, mine = published(), ours()
    assert len(theirs.calls) >= 35
    assert {k: v for k, v in theirs.calls.items() if mine.calls.get(k) != v} == {}


def test_no_new_field_reuses_a_published_number() -> None:
    theirs, mine = published(), ours()
    taken = {(message, value[0]): name for (message, name), value in theirs.fields.items() if name}
    clashes = {
        (message, name): taken[message, value[0]]
        for (message, name), value in mine.fields.items()
        if name and taken.get((message, value[0]), name) != name
    }
    assert clashes == {}
