"""Messages between a node and a FornaxCore: method paths, sizes, and the checks of a received message.

    getMessage(NodeIdentifier) -> stream FornaxCoreMessage      putMessage(FornaxCoreMessage) -> Empty

A message has its type twice: as `messageType`, and as the body that is set, whose field number is the type's number.
The link receives plain bytes, so that a message which is no FornaxCoreMessage is refused alone and does not end the
stream. Source: nodeagent.md and fornaxcore.proto of fornax-serverless.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from kubeletx.api import Internal

from .stubs import fornaxcore_pb2 as pb

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["FornaxCoreService"]
GET_MESSAGE: Final = f"/{_SERVICE.full_name}/{_SERVICE.methods_by_name['getMessage'].name}"
PUT_MESSAGE: Final = f"/{_SERVICE.full_name}/{_SERVICE.methods_by_name['putMessage'].name}"

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

NAME_LIMIT: Final = 253
TEXT_LIMIT: Final = 1_000
"""Most characters of a core's text in an error."""

_BODY: Final = pb.FornaxCoreMessage.DESCRIPTOR.oneofs_by_name["MessageBody"]
_BODIES: Final = {field.number: field.name for field in _BODY.fields}
"""Name of the body's field by message type."""
_IDENTIFIERS: Final = {
    pb.POD_CREATE: ("podIdentifier",),
    pb.POD_TERMINATE: ("podIdentifier",),
    pb.POD_HIBERNATE: ("podIdentifier",),
    pb.POD_ACTIVE: ("podIdentifier",),
    pb.SESSION_OPEN: ("sessionIdentifier", "podIdentifier"),
    pb.SESSION_CLOSE: ("sessionIdentifier",),
}
"""Fields of a command that are identifiers of the form namespace/name, by message type."""
_OBJECTS: Final = {pb.POD_CREATE: "pod", pb.SESSION_OPEN: "session"}
"""Field of a command with the object to create, by message type."""
FROM_CORE: Final = frozenset(
    {*_IDENTIFIERS, pb.FORNAX_CORE_CONFIGURATION, pb.NODE_CONFIGURATION, pb.NODE_FULL_SYNC}
)
"""Types of the messages that a core sends; the others are sent by nodes only."""


class InvalidMessage(Internal):
    """A message that breaks the protocol: it is refused, logged once, and changes nothing."""


def parse(data: bytes, node: str) -> pb.FornaxCoreMessage:
    """Return the message that a core sent to the node with identifier `node`.

    Raises InvalidMessage if it is no FornaxCoreMessage, is for another node, has a type that cores do not send, lacks
    the body of its type, or lacks a valid identifier or the object of its command.
    """
    try:
        message = pb.FornaxCoreMessage.FromString(data)
    except DecodeError as error:
        raise InvalidMessage(f"{len(data)} bytes are not a FornaxCoreMessage: {error}") from error
    if message.nodeIdentifier.identifier != node:
        found_node = shortened(repr(message.nodeIdentifier.identifier))
        raise InvalidMessage(f"message is for node {found_node}, this is {node!r}")
    kind = message.messageType
    if kind not in FROM_CORE:
        known = _BODIES.get(kind)
        problem = f"{known} is sent by nodes only" if known else f"message type {kind} is unknown"
        raise InvalidMessage(problem)
    wanted, found = _BODIES[kind], message.WhichOneof("MessageBody")
    if found != wanted:
        raise InvalidMessage(f"message of type {kind} has {found or 'no body'}, not {wanted}")
    body = getattr(message, wanted)
    for name in _IDENTIFIERS.get(kind, ()):
        if not _is_identifier(getattr(body, name)):
            raise InvalidMessage(
                f"{wanted}.{name}: {shortened(repr(getattr(body, name)))} is not namespace/name"
            )
    part = _OBJECTS.get(kind)
    if part is not None and not body.HasField(part):
        raise InvalidMessage(f"{wanted}.{part} is missing")
    return message


def _is_identifier(text: str) -> bool:
    """Return True if the text has the form namespace/name, each with at most 253 characters."""
    namespace, _, name = text.partition("/")
    return "/" not in name and all(0 < len(part) <= NAME_LIMIT for part in (namespace, name))


def shortened(text: str) -> str:
    """Return the text, or its beginning: a core may send 64 MiB, and errors are logged and kept."""
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}... ({len(text)} characters)"
