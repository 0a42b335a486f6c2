"""Conversion between values of this room and messages of the session service. Source: protos/sessions."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from kubeletx.api import InvalidConfig

from .model import Client, Session
from .stubs import session_service_pb2 as pb

_OPENING = "open/"
_NAME_LIMIT = 253
"""Most characters of a client's name, as of names in Kubernetes."""


class StateReport(msgspec.Struct, frozen=True):
    """An instance's report about one session. `state`: a value of the published enum. `clients`: sorted by name."""

    state: int
    clients: tuple[Client, ...] = ()


def open_message(session: Session) -> pb.SessionMessage:
    """Build OPEN_SESSION with the session's data.

    Its identifier is the same if it is repeated, and another one for the next session of the same name.
    """
    configuration = pb.SessionConfiguration(sessionData=session.data)
    message = _message(session, pb.OPEN_SESSION)
    message.messageIdentifier = _opening(session)
    message.openSession.CopyFrom(pb.OpenSession(sessionConfiguration=configuration))
    return message


def is_about_earlier(message: pb.SessionMessage, session: Session) -> bool:
    """Return True if a report is about an earlier session of the same name.

    The SDK copies the identifier of OPEN_SESSION into its reports; other applications use any identifier.
    """
    named = message.messageIdentifier
    return named.startswith(_OPENING) and named != _opening(session)


def _opening(session: Session) -> str:
    return f"{_OPENING}{session.created_at.timestamp():.6f}"


def close_message(session: Session, grace_seconds: float) -> pb.SessionMessage:
    """Build CLOSE_SESSION; the grace period is rounded down to whole seconds."""
    message = _message(session, pb.CLOSE_SESSION)
    message.closeSession.CopyFrom(pb.CloseSession(gracePeriodSeconds=max(0, int(grace_seconds))))
    return message


def ping_message(session: Session) -> pb.SessionMessage:
    """Build PING_SESSION."""
    message = _message(session, pb.PING_SESSION)
    message.pingSession.SetInParent()
    return message


def _message(session: Session, kind: pb.MessageType) -> pb.SessionMessage:
    identifier = pb.SessionIdentifier(podId=session.pod_id, identifier=session.id)
    return pb.SessionMessage(sessionIdentifier=identifier, messageType=kind)


def close_leftover(pod_id: str, session_id: str) -> pb.SessionMessage:
    """Build CLOSE_SESSION for a session that only the application still has."""
    message = pb.SessionMessage(
        sessionIdentifier=pb.SessionIdentifier(podId=pod_id, identifier=session_id),
        messageType=pb.CLOSE_SESSION,
    )
    message.closeSession.SetInParent()
    return message


def read_report(message: pb.SessionMessage, *, clients_limit: int) -> StateReport:
    """Return the report in a SESSION_STATE message, without clients that have left.

    Raises InvalidConfig, which maps to INVALID_ARGUMENT, for other messages, unknown states and too many clients.
    """
    obj = f"message about session {message.sessionIdentifier.identifier!r}"
    if message.messageType != pb.SESSION_STATE or message.WhichOneof("MessageBody") != "sessionStatus":
        problem = f"type {int(message.messageType)} with body {message.WhichOneof('MessageBody')}"
        fix = "send SESSION_STATE with sessionStatus"
        raise InvalidConfig(obj=obj, field="messageType", problem=problem, fix=fix)
    status = message.sessionStatus
    if status.sessionState not in pb.SessionState.values():
        problem = f"unknown value {int(status.sessionState)}"
        fix = f"use one of {', '.join(pb.SessionState.keys())}"
        raise InvalidConfig(obj=obj, field="sessionStatus.sessionState", problem=problem, fix=fix)
    joined = [client for client in status.clientSession if not client.HasField("timeExit")]
    if len(joined) > clients_limit:
        fix = f"report at most {clients_limit}"
        raise InvalidConfig(
            obj=obj, field="sessionStatus.clientSession", problem=f"{len(joined)} clients", fix=fix
        )
    clients = {one.clientIdentifier: _client(obj, one) for one in joined}
    return StateReport(int(status.sessionState), tuple(clients[name] for name in sorted(clients)))


def _client(obj: str, client: pb.ClientSession) -> Client:
    name = client.clientIdentifier
    if not 0 < len(name) <= _NAME_LIMIT:
        field, problem = "sessionStatus.clientSession.clientIdentifier", f"{len(name)} characters"
        raise InvalidConfig(obj=obj, field=field, problem=problem, fix=f"use 1 to {_NAME_LIMIT}")
    return Client(name=name, joined_at=_moment(client) if client.HasField("timeJoin") else None)


def _moment(client: pb.ClientSession) -> datetime | None:
    try:
        return client.timeJoin.ToDatetime(UTC)
    except (ValueError, OverflowError):  # outside the years that a datetime can have
        return None
